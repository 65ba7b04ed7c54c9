package peer;

/** Which queue a number stands for: neighbours in the log lie in different queues. */
final class Queues {
    /** A prime, so that stepping by it visits every queue once before any queue twice. */
    private static final long STRIDE = 7919;
    private static final int FEW = 8;
    private static final int PER_TOPIC = 10;

    final int count;
    final int perTopic;
    private final String[] topics;

    Queues(int count) {
        this.count = count;
        perTopic = count <= FEW ? count : PER_TOPIC;
        topics = new String[(count + perTopic - 1) / perTopic];
        for (int at = 0; at < topics.length; at++) {
            topics[at] = String.format("BenchTopic-%06d", at);
        }
    }

    int of(long number) {
        return (int) (number * STRIDE % count);
    }

    String topic(int queue) {
        return topics[queue / perTopic];
    }

    int id(int queue) {
        return queue % perTopic;
    }

    String[] topics() {
        return topics;
    }
}
