package interop;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.store.rocksdb.MessageRocksDBStorage;

/** RocketMQ's clients of a broker, found through its name server. */
final class Clients {
    private static final long TIMEOUT = 30_000;
    private static final String NAME = "a";
    private final Map<String, MessageExt> popped = new HashMap<>();
    private final BrokerController broker;
    private final Map<String, Producer> producers = new HashMap<>();

    Clients(BrokerController broker) {
        this.broker = broker;
    }

    /** A producer of transactions, and what it answers a broker that checks one of them. */
    private static final class Producer implements TransactionListener {
        final TransactionMQProducer client;
        final Map<String, Integer> checks = new ConcurrentHashMap<>();
        volatile String decided = "none";

        Producer(String group, String names) throws Exception {
            client = new TransactionMQProducer(group);
            client.setNamesrvAddr(names);
            client.setInstanceName(group);
            client.setTransactionListener(this);
            client.start();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object fate) {
            return LocalTransactionState.valueOf((String) fate);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.merge(message.getKeys(), 1, Integer::sum);
            return message.getKeys().startsWith(decided) ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.UNKNOW;
        }
    }

    /** A client of the group that the broker knows by a heartbeat. */
    private Producer producer(String group, String topic) throws Exception {
        Producer producer = producers.get(group);
        if (producer == null) {
            producer = new Producer(group, broker.getBrokerConfig().getNamesrvAddr());
            producers.put(group, producer);
        }
        producer.client.fetchPublishMessageQueues(topic); // tells where there is no way
        var factory = producer.client.getDefaultMQProducerImpl().getMqClientFactory();
        while (broker.getProducerManager().getAvailableChannel(group) == null) {
            factory.updateTopicRouteInfoFromNameServer(topic);
            factory.sendHeartbeatToAllBrokerWithLock();
        }
        return producer;
    }

    /** Whether a producer finds the way to the topic. */
    Object routed(String topic) {
        try {
            producer("any", topic);
            return Map.of("routed", true);
        } catch (MQClientException fault) {
            return Map.of("routed", false);
        } catch (Exception fault) {
            throw new IllegalStateException(fault);
        }
    }

    /** Sends transactions with keys NAME0, NAME1 …, all of one fate. */
    Object send(String group, String topic, String name, int count, String fate) throws Exception {
        Map<String, Integer> statuses = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "", name + i, name.getBytes(StandardCharsets.UTF_8));
            var sent = producer(group, topic).client.sendMessageInTransaction(message, fate);
            statuses.merge(sent.getSendStatus() + " " + sent.getLocalTransactionState(), 1, Integer::sum);
        }
        return statuses;
    }

    /** From now on the group commits what is checked and has a key that begins so. */
    Object decide(String group, String topic, String decided) throws Exception {
        producer(group, topic).decided = decided;
        return Map.of();
    }

    /** Has the broker look now at the half messages that are old enough. */
    Object check() throws Exception {
        broker.getTransactionalMessageCheckService().wakeup();
        var inRocksDB = field(BrokerController.class, broker, "transactionalMessageRocksDBService");
        if (inRocksDB != null && broker.getMessageStoreConfig().isTransRocksDBEnable()) {
            ((ServiceThread) field(inRocksDB.getClass(), inRocksDB, "transStatusService")).wakeup();
        }
        return Map.of();
    }

    /** How many half messages the broker has in RocksDB. */
    Object open() throws Exception {
        var storage = broker.getMessageStore().getTransMessageRocksDBStore().getMessageRocksDBStorage();
        return Map.of("open", storage.scanRecordsForTrans(MessageRocksDBStorage.TRANS_COLUMN_FAMILY, 100, null).size());
    }

    private static Object field(Class<?> of, Object object, String name) throws Exception {
        var field = of.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    /** How often each key was checked at the group. */
    Object checks(String group) {
        return new TreeMap<>(producers.get(group).checks);
    }

    /** Pops up to COUNT messages, of any queue; says the keys. */
    Object pop(String group, String topic, int count, long invisible) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(count);
        header.setInvisibleTime(invisible);
        header.setInitMode(ConsumeInitMode.MIN);
        header.setBrokerName(NAME);
        header.setPollTime(0);
        header.setBornTime(System.currentTimeMillis());
        var result = new CompletableFuture<List<MessageExt>>();
        api(topic).popMessageAsync(NAME, address(), header, TIMEOUT, new PopCallback() {
            @Override
            public void onSuccess(PopResult found) {
                result.complete(found.getMsgFoundList() == null ? List.of() : found.getMsgFoundList());
            }

            @Override
            public void onException(Throwable fault) {
                result.completeExceptionally(fault);
            }
        });
        List<MessageExt> messages = result.get();
        messages.forEach(message -> popped.put(message.getKeys(), message));
        return messages.stream().map(MessageExt::getKeys).toList();
    }

    /** Acknowledges the message of a key that was popped last. */
    Object ack(String group, String topic, String key) throws Exception {
        String[] words = ExtraInfoUtil.split(popped.get(key).getProperty(MessageConst.PROPERTY_POP_CK));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(words, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setConsumerGroup(group);
        header.setExtraInfo(popped.get(key).getProperty(MessageConst.PROPERTY_POP_CK));
        header.setBrokerName(NAME);
        var result = new CompletableFuture<String>();
        api(topic).ackMessageAsync(address(), TIMEOUT, new AckCallback() {
            @Override
            public void onSuccess(AckResult done) {
                result.complete(done.getStatus().name());
            }

            @Override
            public void onException(Throwable fault) {
                result.completeExceptionally(fault);
            }
        }, header);
        return Map.of("status", result.get());
    }

    private MQClientAPIImpl api(String topic) throws Exception {
        return producer("any", topic).client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    private String address() {
        return broker.getBrokerAddr();
    }

    void shutdown() {
        producers.values().forEach(producer -> producer.client.shutdown());
    }
}
