import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Runs the peer's topology until it is ended: input, output, application, bootstrap, folder of its state. */
public final class StayingPeer {
    private StayingPeer() {
    }

    public static void main(String[] given) throws Exception {
        var build = Class.forName("bench.ShareHolders").getDeclaredMethod("build", String.class, String.class);
        build.setAccessible(true);
        var config = new Properties();
        config.put("application.id", given[2]);
        config.put("bootstrap.servers", given[3]);
        config.put("state.dir", given[4]);
        config.put("num.stream.threads", "2");
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("auto.offset.reset", "earliest");
        var topology = ((StreamsBuilder) build.invoke(null, given[0], given[1])).build(config);
        var streams = new KafkaStreams(topology, config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        new CountDownLatch(1).await();
    }
}
