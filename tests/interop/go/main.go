// Smoke test of franz-go: produce idempotently with every codec, read in a group, commit, print the counts.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 200

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

func produce(ctx context.Context, bootstrap, topic, name string, codec kgo.CompressionCodec) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
	fail("client", err)
	defer client.Close()
	for number := 0; number < perCodec; number++ {
		record := &kgo.Record{
			Topic:   topic,
			Key:     []byte(fmt.Sprint(number)),
			Value:   []byte(fmt.Sprintf("%s-%d", name, number)),
			Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { fail("produce", err) })
	}
	fail("flush", client.Flush(ctx))
}

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		produce(ctx, bootstrap, topic, name, codec)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup("go-"+topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)
	fail("client", err)
	seen := map[string]bool{}
	for len(seen) < perCodec*len(codecs) {
		fetches := client.PollFetches(ctx)
		fail("fetch", fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)] = true })
	}
	fail("commit", client.CommitUncommittedOffsets(ctx))
	client.Close()
	fmt.Println("ok", len(seen))
}
