package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 5: queues in files or, TYPE defaultRocksDB, in RocksDB; the broker sees to delays. */
public final class Five extends Release {
    public static void main(String[] words) {
        new Five().run(words);
    }

    @Override
    DefaultMessageStore make(MessageStoreConfig config, BrokerConfig broker, BrokerStatsManager stats, Set<String> names)
        throws Exception {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        names.forEach(name -> topics.put(name, new TopicConfig(name, 8, 8)));
        return config.isEnableRocksDBStore() ? new RocksDBMessageStore(config, stats, null, broker, topics)
            : new DefaultMessageStore(config, stats, null, broker, topics);
    }

    @Override
    MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    @Override
    PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        if (inner.getDelayTimeLevel() > 0) {
            MessageAccessor.putProperty(inner, "REAL_TOPIC", inner.getTopic());
            MessageAccessor.putProperty(inner, "REAL_QID", String.valueOf(inner.getQueueId()));
            inner.setTopic("SCHEDULE_TOPIC_XXXX");
            inner.setQueueId(inner.getDelayTimeLevel() - 1);
        }
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, inner.getTags()));
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        return store.putMessage(inner);
    }

    @Override
    List<Object> unit(DefaultMessageStore store, String topic, int queueId, long at) {
        CqUnit unit = store.getConsumeQueue(topic, queueId).get(at);
        return unit == null ? null
            : new ArrayList<>(List.of(unit.getQueueOffset(), unit.getPos(), unit.getSize(), unit.getTagsCode()));
    }
}
