// Smoke test of kafkajs: create a topic, produce plain and gzipped, read in a group, commit, print the counts.
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

async function main(bootstrap, topic) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const values = [];
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = [];
    for (let number = 0; number < 200; number++) {
      const value = `${compression}-${number}`;
      values.push(value);
      messages.push({ key: String(number), value, headers: { codec: String(compression) } });
    }
    await producer.send({ topic, messages, compression, acks: -1 });
  }
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `node-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`read ${seen.size} of ${values.length} in 40 s`)), 40000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.add(message.value.toString());
        if (seen.size === values.length) resolve();
      },
    });
  });
  await consumer.disconnect();
  const offsets = await admin.fetchTopicOffsets(topic);
  const total = offsets.reduce((sum, partition) => sum + Number(partition.high), 0);
  if (total !== values.length) throw new Error(`${total} offsets for ${values.length} records`);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log("ok", seen.size);
}

main(process.argv[2], process.argv[3]).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
