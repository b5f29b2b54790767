// kafkajs over TLS and logins: produce, read in a group, print the count. The argument is JSON.
const fs = require("fs");
const https = require("https");
const { Kafka, logLevel } = require("kafkajs");

const COUNT = 20;

function fetchToken({ tokenUrl, user, password }, ca) {
  const form = new URLSearchParams({
    grant_type: "client_credentials",
    client_id: user,
    client_secret: password,
  }).toString();
  const headers = { "Content-Type": "application/x-www-form-urlencoded", "Content-Length": form.length };
  return new Promise((resolve, reject) => {
    const request = https.request(tokenUrl, { method: "POST", ca, headers }, (response) => {
      let body = "";
      response.on("data", (piece) => (body += piece));
      response.on("end", () => resolve({ value: JSON.parse(body).access_token }));
    });
    request.on("error", reject);
    request.end(form);
  });
}

function login(given, ca) {
  const { login, user, password } = given;
  if (login.endsWith("TLS")) return undefined;
  if (login === "OAUTHBEARER") return { mechanism: "oauthbearer", oauthBearerProvider: () => fetchToken(given, ca) };
  return { mechanism: login.toLowerCase(), username: user, password };
}

async function main(given) {
  const ca = [fs.readFileSync(given.ca)];
  const own = given.login === "MUTUAL-TLS" ? fs.readFileSync(given.certificate) : undefined;
  const kafka = new Kafka({
    brokers: [given.servers],
    ssl: { ca, cert: own, key: own },
    sasl: login(given, ca),
    logLevel: logLevel.NOTHING,
    retry: { retries: 5 },
  });
  const { topic } = given;
  const producer = kafka.producer();
  await producer.connect();
  const messages = [...Array(COUNT).keys()].map((number) => ({ value: String(number) }));
  await producer.send({ topic, messages });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `node-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`read ${seen.size} of ${COUNT} in 60 s`)), 60000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.add(message.value.toString());
        if (seen.size === COUNT) resolve();
      },
    });
  });
  await consumer.disconnect();
  console.log("ok", seen.size);
}

main(JSON.parse(process.argv[2])).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
