package interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 4.9: queues are files, and the store itself sees to delays. */
public final class Four extends Release {
    public static void main(String[] words) {
        new Four().run(words);
    }

    @Override
    DefaultMessageStore make(MessageStoreConfig config, BrokerConfig broker, BrokerStatsManager stats, Set<String> topics)
        throws Exception {
        return new DefaultMessageStore(config, stats, (topic, queueId, end, tags, time, bits, properties) -> { }, broker);
    }

    @Override
    MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    @Override
    PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, inner.getTags()));
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        return store.putMessage(inner);
    }

    @Override
    List<Object> unit(DefaultMessageStore store, String topic, int queueId, long at) {
        SelectMappedBufferResult found = store.getConsumeQueue(topic, queueId).getIndexBuffer(at);
        if (found == null) {
            return null;
        }
        ByteBuffer unit = found.getByteBuffer();
        List<Object> row = new ArrayList<>(List.of(at, unit.getLong(), unit.getInt(), unit.getLong()));
        found.release();
        return row;
    }
}
