package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
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
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.rocksdb.MessageRocksDBStorage;

/** RocketMQ's clients of a broker, found through its name server. */
final class Clients {
    private static final long TIMEOUT = 30_000;
    private static final String NAME = "a";
    private final Map<String, String> popped = new HashMap<>();
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

    /** Sends client batches of these sizes to one queue, each in one request. */
    Object batches(String topic, int queue, String[] sizes) throws Exception {
        List<String> statuses = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        for (String size : sizes) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(size); i++) {
                messages.add(new Message(topic, "", "key" + i, String.valueOf(i).getBytes(StandardCharsets.UTF_8)));
            }
            var sent = producer("any", topic).client.send(messages, new MessageQueue(topic, NAME, queue));
            statuses.add(sent.getSendStatus().name());
            offsets.add(sent.getQueueOffset());
        }
        return Map.of("statuses", statuses, "offsets", offsets);
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

    /** Sends messages with keys NAME0, NAME1 … that wait as long as the level says. */
    Object delayed(String topic, int level, int count, String name) throws Exception {
        Map<String, Integer> statuses = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "", name + i, name.getBytes(StandardCharsets.UTF_8));
            message.setDelayTimeLevel(level);
            statuses.merge(producer("any", topic).client.send(message).getSendStatus().name(), 1, Integer::sum);
        }
        return Map.of("statuses", statuses);
    }

    /** Lets the broker know by a heartbeat that a consumer of the group wants what an expression lets through. */
    Object subscribe(String group, String topic, String expression) throws Exception {
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName(group);
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.getSubscriptionDataSet().add(FilterAPI.build(topic, expression, ExpressionType.SQL92));
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID(group);
        heartbeat.getConsumerDataSet().add(consumer);
        api(topic).sendHeartbeat(address(), heartbeat, TIMEOUT);
        return Map.of();
    }

    /** Pops up to COUNT messages, of any queue; says the keys, and by what each is acknowledged. */
    Object pop(String group, String topic, int count, long invisible, boolean ordered) throws Exception {
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
        header.setOrder(ordered);
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
        List<String> handles = messages.stream().map(message -> message.getProperty(MessageConst.PROPERTY_POP_CK)).toList();
        for (int i = 0; i < messages.size(); i++) {
            popped.put(messages.get(i).getKeys(), handles.get(i));
        }
        return Map.of("keys", messages.stream().map(MessageExt::getKeys).toList(), "handles", handles);
    }

    /** Acknowledges the message of a key that was popped last, or by a handle that an earlier broker gave. */
    Object ack(String group, String topic, String key, String given) throws Exception {
        String handle = given == null ? popped.get(key) : given;
        String[] words = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(words, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setConsumerGroup(group);
        header.setExtraInfo(handle);
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
