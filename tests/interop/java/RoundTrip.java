import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Creates a topic, writes to it with every codec, idempotently, reads it back in a group, commits, and looks at it. */
public class RoundTrip {
    static final int RECORDS_PER_CODEC = 500;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            Set<String> written = new HashSet<>();
            for (String codec : CODECS) {
                produce(bootstrap, topic, codec, written);
            }
            Set<String> read = consume(bootstrap, topic, written.size());
            check(read.equals(written), "read " + read.size() + " of " + written.size());
            Map<TopicPartition, OffsetAndMetadata> committed =
                admin.listConsumerGroupOffsets("java-" + topic).partitionsToOffsetAndMetadata().get();
            long total = committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
            check(total == written.size(), "committed " + total + " of " + written.size());
            check(admin.describeCluster().nodes().get().size() == 1, "one node");
            admin.deleteTopics(List.of(topic)).all().get();
            System.out.println("ok " + read.size());
        }
    }

    static void produce(String bootstrap, String topic, String codec, Set<String> written) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", codec);
        config.put("enable.idempotence", true);
        config.put("linger.ms", 5);
        try (KafkaProducer<String, String> producer =
            new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS_PER_CODEC; number++) {
                String value = codec + "-" + number;
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, number % 7 == 0 ? null : "key-" + number, value);
                record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                record.headers().add("nothing", null);
                producer.send(record);
                written.add(value);
            }
            producer.flush();
        }
    }

    static Set<String> consume(String bootstrap, String topic, int count) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", "java-" + topic);
        config.put("group.protocol", "classic");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        Set<String> read = new HashSet<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (read.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    String codec = new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
                    check(record.value().startsWith(codec + "-"), "header " + codec + " beside " + record.value());
                    check(record.headers().lastHeader("nothing").value() == null, "a header without a value");
                    check(read.add(record.value()), record.value() + " twice");
                }
            }
            consumer.commitSync();
        }
        return read;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }
}
