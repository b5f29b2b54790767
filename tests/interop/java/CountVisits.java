import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/** Counts values by the key within them, joined with a table: a repartition topic, two changelogs, two threads. */
public class CountVisits {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("state.dir", arguments[1]);
        config.put("application.id", "count-visits");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("commit.interval.ms", 200);
        config.put("num.stream.threads", 2);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> places = builder.table("streams-places", Materialized.as("places"));
        builder.<String, String>stream("streams-visits")
            .selectKey((key, value) -> value.split("/")[0])
            .join(places, (visit, place) -> place)
            .groupByKey(Grouped.as("by-place"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("streams-counts");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            System.in.read(); // until the test ends this process
            streams.close(Duration.ofSeconds(30));
            System.out.println("ended as " + streams.state());
        }
    }
}
