package benchmarks.streaming;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Sentences for a real-time query, each given out when it is due.
 *
 * <p>Options: `texts`, a file of sentences, used in turn; `rate`, in sentences a second, or 0 for as fast as they are asked
 * for; `seconds`, after which there are no more. One partition, so that numbers rise.
 */
public final class SentenceSource implements TableProvider {
    private static final StructType SCHEMA =
            new StructType().add("number", "long").add("due", "long").add("text", "string");

    private static volatile long total = -1;

    /** Return how many sentences there were, or -1 before the last. */
    public static long total() {
        return total;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new Sentences();
    }

    private static final class Sentences implements SupportsRead {
        @Override
        public String name() {
            return "sentences";
        }

        @Override
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new Scan() {
                @Override
                public StructType readSchema() {
                    return SCHEMA;
                }

                @Override
                public MicroBatchStream toMicroBatchStream(String checkpoint) {
                    return new SentenceStream(
                            options.get("texts"), options.getDouble("rate", 0), options.getDouble("seconds", 0));
                }
            };
        }
    }

    /** How far the source has come, and the one partition that goes on from there. */
    private static final class Position extends Offset implements PartitionOffset, InputPartition {
        private final long number;

        Position(long number) {
            this.number = number;
        }

        @Override
        public String json() {
            return Long.toString(number);
        }
    }

    private record SentenceStream(String texts, double rate, double seconds)
            implements MicroBatchStream, SupportsRealTimeMode {
        @Override
        public InputPartition[] planInputPartitions(Offset start) {
            return new InputPartition[] {(Position) start};
        }

        @Override
        public Offset mergeOffsets(PartitionOffset[] offsets) {
            return (Position) offsets[0];
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Factory(texts, rate, seconds);
        }

        @Override
        public Offset initialOffset() {
            return new Position(0);
        }

        @Override
        public Offset deserializeOffset(String json) {
            return new Position(Long.parseLong(json));
        }

        @Override
        public Offset latestOffset() {
            return initialOffset(); // asked for when the query starts, and then nothing is due
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            throw new UnsupportedOperationException("only real-time queries can read it");
        }

        @Override
        public void commit(Offset end) {}

        @Override
        public void stop() {}
    }

    private record Factory(String texts, double rate, double seconds) implements PartitionReaderFactory {
        @Override
        public SupportsRealTimeRead<InternalRow> createReader(InputPartition partition) {
            try {
                List<UTF8String> sentences =
                        Files.readAllLines(Path.of(texts)).stream().map(UTF8String::fromString).toList();
                return new Reader(sentences, rate, seconds, ((Position) partition).number);
            } catch (IOException problem) {
                throw new IllegalStateException(problem);
            }
        }
    }

    private static final class Reader implements SupportsRealTimeRead<InternalRow> {
        private final List<UTF8String> texts;
        private final double rate;
        private final double seconds;
        private long next;
        private long start = -1;
        private InternalRow row;

        Reader(List<UTF8String> texts, double rate, double seconds, long next) {
            this.texts = texts;
            this.rate = rate;
            this.seconds = seconds;
            this.next = next;
        }

        @Override
        public RecordStatus nextWithTimeout(Long begin, Long timeoutMs) {
            return nextWithTimeout(timeoutMs);
        }

        @Override
        public RecordStatus nextWithTimeout(Long timeoutMs) {
            long now = System.nanoTime();
            long deadline = now + timeoutMs * 1_000_000;
            start = start < 0 ? now : start;
            boolean more = rate > 0 ? next < Math.round(rate * seconds) : now - start < seconds * 1e9;
            if (!more) {
                total = next;
            }
            long due = !more ? deadline : rate > 0 ? start + (long) (next / rate * 1e9) : now;
            while ((now = System.nanoTime()) < Math.min(due, deadline)) {
                LockSupport.parkNanos(Math.min(due, deadline) - now);
            }
            if (due >= deadline) {
                return RecordStatus.newStatusWithoutArrivalTime(false);
            }
            row = new GenericInternalRow(new Object[] {next, due, texts.get((int) (next % texts.size()))});
            next++;
            return RecordStatus.newStatusWithArrivalTimeMs(System.currentTimeMillis());
        }

        @Override
        public InternalRow get() {
            return row;
        }

        @Override
        public PartitionOffset getOffset() {
            return new Position(next);
        }

        @Override
        public boolean next() {
            throw new UnsupportedOperationException("only real-time queries can read it");
        }

        @Override
        public void close() {}
    }
}
