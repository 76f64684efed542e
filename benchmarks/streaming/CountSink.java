package benchmarks.streaming;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * Records when each word's count arrives: the number and due time of the word's sentence, and the time.
 *
 * <p>Rows: word, count, number, due. Times are nanoseconds of `System.nanoTime`.
 */
public final class CountSink extends ForeachWriter<Row> {
    private static final List<CountSink> SINKS = new CopyOnWriteArrayList<>();
    private static final int COLUMNS = 3;

    private transient long[] seen;
    private transient volatile int length;
    private transient Map<String, Long> counts;

    @Override
    public boolean open(long partition, long epoch) {
        seen = new long[1 << 16];
        counts = new HashMap<>();
        SINKS.add(this);
        return true;
    }

    @Override
    public void process(Row row) {
        int at = length;
        if (at + COLUMNS > seen.length) {
            seen = Arrays.copyOf(seen, 2 * seen.length);
        }
        counts.put(row.getString(0), row.getLong(1));
        seen[at] = row.getLong(2);
        seen[at + 1] = row.getLong(3);
        seen[at + 2] = System.nanoTime();
        length = at + COLUMNS;
    }

    @Override
    public void close(Throwable error) {}

    /** Return how many words have arrived. */
    public static long arrived() {
        return SINKS.stream().mapToLong(sink -> sink.length / COLUMNS).sum();
    }

    /** Return the sum of the counts; to be asked when nothing arrives any more. */
    public static long counted() {
        return SINKS.stream().flatMap(sink -> sink.counts.values().stream()).mapToLong(Long::longValue).sum();
    }

    /** Write what has arrived. */
    public static void save(String path) throws IOException {
        try (DataOutputStream file =
                new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(path))))) {
            for (CountSink sink : SINKS) {
                for (int at = 0; at < sink.length; at++) {
                    file.writeLong(sink.seen[at]);
                }
            }
        }
    }
}
