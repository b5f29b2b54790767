import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes to a topic and reads it until standard input ends; the clients push their metrics meanwhile, by themselves.
 *
 * Prints the client instance id of the producer and that of the consumer, each in a line, as the broker gave them.
 */
public class PushMetrics {
    static final Duration PATIENCE = Duration.ofSeconds(100);

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Map<String, Object> writing = Map.of("bootstrap.servers", arguments[0], "client.id", "java-producer");
        Map<String, Object> reading = Map.of("bootstrap.servers", arguments[0], "client.id", "java-consumer");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
            KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            System.out.println(text(producer.clientInstanceId(PATIENCE)));
            // A consumer of the classic protocol gets its id while it polls.
            Uuid instance = null;
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(topic, "value")).get();
                consumer.poll(Duration.ofMillis(50));
                if (instance == null && (instance = consumer.clientInstanceId(Duration.ZERO)) != null) {
                    System.out.println(text(instance));
                }
            }
        }
    }

    static UUID text(Uuid instance) {
        return new UUID(instance.getMostSignificantBits(), instance.getLeastSignificantBits());
    }
}
