import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic into another, key by key, each portion with its offsets in one transaction; every fifth is aborted. */
public class CopyExactlyOnce {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String from = arguments[1];
        String to = arguments[2];
        String name = arguments[3];
        String protocol = arguments[4];
        while (true) {
            try {
                copy(bootstrap, from, to, name, protocol);
            } catch (KafkaException error) {
                System.err.println("begins again: " + error);
            }
        }
    }

    static void copy(String bootstrap, String from, String to, String name, String protocol) {
        Properties reading = new Properties();
        reading.putAll(Map.of(
            "bootstrap.servers", bootstrap, "group.id", "copiers", "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", "read_committed", "max.poll.records", 200,
            "group.protocol", protocol));
        if (protocol.equals("classic")) {
            reading.putAll(Map.of("session.timeout.ms", 6000, "heartbeat.interval.ms", 1000));
        }
        Properties writing = new Properties();
        writing.putAll(Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", name, "transaction.timeout.ms", 10000,
            "delivery.timeout.ms", 30000, "request.timeout.ms", 10000, "linger.ms", 2));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            System.out.println("ready");
            int count = 0;
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                try {
                    Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
                        next.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                    if (++count % 5 == 0) {
                        producer.flush();
                        throw new KafkaException("as if it had gone wrong");
                    }
                    producer.commitTransaction();
                } catch (ProducerFencedException error) {
                    throw error;
                } catch (KafkaException error) {
                    System.err.println("aborts: " + error + ", " + error.getCause());
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        consumer.seek(partition, records.records(partition).get(0).offset());
                    }
                }
            }
        }
    }
}
