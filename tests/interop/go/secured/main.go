// franz-go over TLS and logins: produce, read in a group, print the count. The argument is JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const count = 20

type settings struct {
	Servers, Topic, Login, CA, Certificate, User, Password, TokenURL string
}

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

func (s settings) tls() *tls.Config {
	pem, err := os.ReadFile(s.CA)
	fail("authority", err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if s.Login == "MUTUAL-TLS" {
		pair, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		fail("certificate", err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (s settings) token(ctx context.Context) (oauth.Auth, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls()}}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {s.User}, "client_secret": {s.Password}}
	response, err := client.PostForm(s.TokenURL, form)
	if err != nil {
		return oauth.Auth{}, err
	}
	defer response.Body.Close()
	var given struct {
		AccessToken string `json:"access_token"`
	}
	err = json.NewDecoder(response.Body).Decode(&given)
	return oauth.Auth{Token: given.AccessToken}, err
}

func (s settings) login() sasl.Mechanism {
	switch s.Login {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Oauth(s.token)
	}
	return nil
}

func main() {
	var given settings
	fail("argument", json.Unmarshal([]byte(os.Args[1]), &given))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Servers), kgo.DialTLSConfig(given.tls()), kgo.AllowAutoTopicCreation(),
		kgo.RecordRetries(5), kgo.ConsumerGroup("go-" + given.Topic), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if mechanism := given.login(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	fail("client", err)
	defer client.Close()
	fail("ping", client.Ping(ctx))
	for number := 0; number < count; number++ {
		record := &kgo.Record{Topic: given.Topic, Value: []byte(fmt.Sprint(number))}
		fail("produce", client.ProduceSync(ctx, record).FirstErr())
	}
	seen := map[string]bool{}
	for len(seen) < count {
		fetches := client.PollFetches(ctx)
		fail("context", ctx.Err())
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)] = true })
	}
	fmt.Println("ok", len(seen))
}
