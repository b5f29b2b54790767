import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The other application: reads the orders of one customer from the one partition in which Java's client would put them. */
public class ReadCustomer {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0], topic = arguments[1], customer = arguments[2];
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            byte[] key = new StringSerializer().serialize(topic, customer);
            int partitions = consumer.partitionsFor(topic).size();
            TopicPartition home = new TopicPartition(topic, BuiltInPartitioner.partitionForKey(key, partitions));
            consumer.assign(List.of(home));
            consumer.seekToBeginning(List.of(home));
            long end = consumer.endOffsets(List.of(home)).get(home);
            while (consumer.position(home) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (customer.equals(record.key())) {
                        System.out.println(record.value());
                    }
                }
            }
        }
    }
}
