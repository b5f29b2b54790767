import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Commits in every mode, moves by seeking, and members that are surplus or come back: of both group protocols. */
public class CommitModes {
    static final int COUNT = 60;
    static final int PORTION = 20;
    static final long PATIENCE_MS = 40_000;

    final String bootstrap;
    final String topic;
    final String protocol;
    final TopicPartition only;
    int groups = 0;

    CommitModes(String bootstrap, String topic, String protocol) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.protocol = protocol;
        this.only = new TopicPartition(topic, 0);
    }

    /** Arguments: bootstrap, protocol, a topic of one partition, one of two; prints a line for each mode that holds. */
    public static void main(String[] arguments) {
        CommitModes modes = new CommitModes(arguments[0], arguments[2], arguments[1]);
        modes.append(0, COUNT);
        modes.automatic();
        modes.waitedFor();
        modes.notWaitedFor();
        modes.atLeastOnce();
        modes.atMostOnce();
        modes.seeks();
        modes.surplus();
        new CommitModes(arguments[0], arguments[3], arguments[1]).comesBack();
    }

    KafkaConsumer<String, String> join(String group, Map<String, Object> more) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", PORTION,
            "auto.commit.interval.ms", 200));
        if (protocol.equals("classic")) {
            settings.putAll(Map.of("heartbeat.interval.ms", 200, "session.timeout.ms", 30_000));
        }
        settings.putAll(more);
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    KafkaConsumer<String, String> join(String group) {
        return join(group, Map.of());
    }

    String group() {
        return topic + "-" + protocol + "-" + groups++;
    }

    void append(int from, int to) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, String.valueOf(number)));
            }
        }
    }

    List<Integer> read(KafkaConsumer<String, String> consumer, int count) {
        List<Integer> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < count) {
            check(System.currentTimeMillis() < deadline, "read " + found.size() + " of " + count);
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                found.add(Integer.parseInt(record.value()));
            }
        }
        check(found.size() == count, "read " + found.size() + ", not " + count);
        return found;
    }

    long committed(KafkaConsumer<String, String> consumer) {
        OffsetAndMetadata found = consumer.committed(Set.of(only)).get(only);
        return found == null ? -1 : found.offset();
    }

    long lag(KafkaConsumer<String, String> consumer) {
        return consumer.endOffsets(Set.of(only)).get(only) - Math.max(0, committed(consumer));
    }

    interface Condition {
        boolean holds();
    }

    void await(Condition condition, String what) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            check(System.currentTimeMillis() < deadline, what);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    static List<Integer> numbers(int... bounds) {
        List<Integer> found = new ArrayList<>();
        for (int index = 0; index < bounds.length; index += 2) {
            for (int number = bounds[index]; number < bounds[index + 1]; number++) {
                found.add(number);
            }
        }
        return found;
    }

    static boolean nothing(KafkaConsumer<String, String> consumer) {
        return consumer.poll(Duration.ofMillis(200)).isEmpty();
    }

    void automatic() {
        String group = group();
        try (KafkaConsumer<String, String> consumer = join(group, Map.of("enable.auto.commit", true))) {
            check(read(consumer, COUNT).equals(numbers(0, COUNT)), "all in order");
            await(() -> nothing(consumer) && committed(consumer) == COUNT, "commits by themselves");
            check(lag(consumer) == 0, "no lag");
        }
        System.out.println("auto");
    }

    void waitedFor() {
        try (KafkaConsumer<String, String> consumer = join(group())) {
            for (int portion = 1; portion <= 3; portion++) {
                read(consumer, PORTION);
                consumer.commitSync();
                check(committed(consumer) == portion * PORTION, "a commit that was waited for");
                check(lag(consumer) == COUNT - portion * PORTION, "lag");
            }
        }
        System.out.println("sync");
    }

    void notWaitedFor() {
        try (KafkaConsumer<String, String> consumer = join(group())) {
            long[] done = {-1};
            read(consumer, PORTION);
            consumer.commitAsync((offsets, error) -> {
                check(error == null, "" + error);
                done[0] = offsets.get(only).offset();
            });
            await(() -> {
                consumer.poll(Duration.ofMillis(50));
                return done[0] == PORTION;
            }, "a commit that was not waited for");
            check(committed(consumer) == PORTION, "it is there");
        }
        System.out.println("async");
    }

    void atLeastOnce() {
        String group = group();
        List<Integer> processed = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = join(group)) {
            processed.addAll(read(consumer, PORTION));
            consumer.commitSync();
            processed.addAll(read(consumer, PORTION));
        }
        try (KafkaConsumer<String, String> consumer = join(group)) {
            processed.addAll(read(consumer, COUNT - PORTION));
        }
        check(processed.equals(numbers(0, 2 * PORTION, PORTION, COUNT)), "at least once: " + processed);
        System.out.println("at least once");
    }

    void atMostOnce() {
        String group = group();
        List<Integer> processed = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = join(group)) {
            List<Integer> first = read(consumer, PORTION);
            consumer.commitSync();
            processed.addAll(first);
            read(consumer, PORTION);
            consumer.commitSync();
        }
        try (KafkaConsumer<String, String> consumer = join(group)) {
            processed.addAll(read(consumer, COUNT - 2 * PORTION));
        }
        check(processed.equals(numbers(0, PORTION, 2 * PORTION, COUNT)), "at most once: " + processed);
        System.out.println("at most once");
    }

    void seeks() {
        try (KafkaConsumer<String, String> consumer = join(group())) {
            read(consumer, COUNT);
            consumer.commitSync();
            consumer.seekToBeginning(Set.of(only));
            check(read(consumer, PORTION).equals(numbers(0, PORTION)), "rewind");
            check(committed(consumer) == COUNT, "a position is not a commit");
            consumer.seek(only, 40);
            check(read(consumer, PORTION).equals(numbers(40, 60)), "seek");
            consumer.seekToEnd(Set.of(only));
            check(consumer.position(only) == COUNT && nothing(consumer), "skip to now");
            append(COUNT, COUNT + 3);
            check(read(consumer, 3).equals(numbers(COUNT, COUNT + 3)), "what comes after");
        }
        System.out.println("seek, rewind, skip to now");
    }

    void surplus() {
        String group = group();
        try (KafkaConsumer<String, String> second = join(group)) {
            try (KafkaConsumer<String, String> first = join(group)) {
                await(() -> {
                    first.poll(Duration.ofMillis(50));
                    second.poll(Duration.ofMillis(50));
                    return first.assignment().size() + second.assignment().size() == 1;
                }, "one has the partition");
                for (int count = 0; count < 10; count++) {
                    first.poll(Duration.ofMillis(50));
                    second.poll(Duration.ofMillis(50));
                }
                check(first.assignment().size() + second.assignment().size() == 1, "the other is idle");
            }
            await(() -> {
                second.poll(Duration.ofMillis(50));
                return second.assignment().size() == 1;
            }, "it is needed");
        }
        System.out.println("surplus");
    }

    void comesBack() {
        String group = group();
        try (KafkaConsumer<String, String> other = join(group, Map.of("group.instance.id", "a"))) {
            Set<TopicPartition> had;
            Set<TopicPartition> kept;
            try (KafkaConsumer<String, String> gone = join(group, Map.of("group.instance.id", "b"))) {
                await(() -> {
                    other.poll(Duration.ofMillis(50));
                    gone.poll(Duration.ofMillis(50));
                    return other.assignment().size() == 1 && gone.assignment().size() == 1;
                }, "both own one");
                had = Set.copyOf(gone.assignment());
                kept = Set.copyOf(other.assignment());
            }
            try (KafkaConsumer<String, String> back = join(group, Map.of("group.instance.id", "b"))) {
                await(() -> {
                    back.poll(Duration.ofMillis(50));
                    other.poll(Duration.ofMillis(50));
                    check(other.assignment().equals(kept), "the other one was disturbed");
                    return back.assignment().equals(had);
                }, "it has its partitions again");
            }
        }
        System.out.println("comes back");
    }
}
