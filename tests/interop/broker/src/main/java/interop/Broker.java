package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerPathConfigHelper;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.SetMessageRequestModeRequestBody;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;

/**
 * A broker of RocketMQ's, without a name server unless its settings name one.
 *
 * <pre>Broker ROOT key=value…     settings of broker and store</pre>
 *
 * It says its ports, then answers each line of its input: topics PREFIX COUNT, groups PREFIX COUNT,
 * topic NAME, perm TOPIC PERM, liteTopic NAME, batchTopic NAME (as an administrator makes one: version 2 of the metadata keeps no other on disk),
 * pull TOPIC QUEUE OFFSET (what the store answers, and the messages in the records, as a client takes them apart),
 * put TOPIC QUEUES COUNT [NAME] (keys NAME0 …), offset TOPIC GROUP QUEUE OFFSET, delay LEVEL OFFSET, mode TOPIC GROUP,
 * forbid GROUP TOPIC, delete TOPIC, metadata, end,
 * fail GROUP TOPIC QUEUE OFFSET (the message goes to the group's dead letters, as if its consumer had given it up),
 * timer TOPIC COUNT MILLISECONDS [NAME], register, read TOPIC, halves (how many of each topic are open, as it counts),
 * role (under a controller),
 * filter GROUP TOPIC (keys that the group's expression lets through, as the broker remembers it; no consumer is asked).
 *
 * Of its clients: send TOPIC QUEUES COUNT NAME [LIGHT,…], consume GROUP ROUTED_TOPIC TOPIC QUEUE, routed TOPIC, batches TOPIC QUEUE SIZES… (bodies are counted from 0 in each batch), transactions GROUP TOPIC NAME COUNT FATE (keys NAME0 …), decide GROUP TOPIC NAME (commit what is
 * checked from now on and has such a key), open, check, checks GROUP, pop GROUP TOPIC COUNT INVISIBLE_MS [ordered],
 * ack GROUP TOPIC KEY [HANDLE], delayed TOPIC LEVEL COUNT NAME, subscribe GROUP TOPIC EXPRESSION (in SQL92).
 */
public final class Broker {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private Broker() { }

    public static void main(String[] words) {
        System.setOut(System.err);
        int code = 0;
        try {
            BrokerController broker = start(Path.of(words[0]), words);
            Clients clients = new Clients(broker);
            Counted counted = new Counted(broker.getBrokerConfig().getNamesrvAddr());
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                line(answer(broker, clients, counted, line.split(" ")));
            }
            clients.shutdown();
            counted.shutdown();
            broker.shutdown();
        } catch (Throwable fault) {
            fault.printStackTrace();
            code = 1;
        }
        OUT.flush();
        Runtime.getRuntime().halt(code);
    }

    private static BrokerController start(Path root, String[] words) throws Exception {
        BrokerPathConfigHelper.setBrokerConfigPath(root.resolve("config/broker.properties").toString());
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.toString());
        store.setStorePathCommitLog(root.resolve("commitlog").toString());
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("a");
        config.setBrokerClusterName("c");
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(Ports.free());
        Properties settings = new Properties();
        for (int i = 1; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        MixAll.properties2Object(settings, store);
        MixAll.properties2Object(settings, config);
        MixAll.properties2Object(settings, server);
        store.setHaListenPort(Ports.free());
        AuthConfig auth = new AuthConfig();
        MixAll.properties2Object(settings, auth);
        BrokerController broker = new BrokerController(config, server, new NettyClientConfig(), store, auth);
        if (!broker.initialize()) {
            throw new IllegalStateException("initialize failed");
        }
        broker.start();
        line(Map.of("port", server.getListenPort(), "haPort", store.getHaListenPort()));
        return broker;
    }

    private static Object answer(BrokerController broker, Clients clients, Counted counted, String[] words)
        throws Exception {
        var topics = broker.getTopicConfigManager();
        switch (words[0]) {
            case "topics":
                for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                    topics.putTopicConfig(new TopicConfig(words[1] + i, 4, 4));
                }
                topics.getDataVersion().nextVersion();
                return Map.of("count", topics.getTopicConfigTable().size());
            case "topic":
                topics.updateTopicConfig(new TopicConfig(words[1], 4, 4));
                return Map.of("count", topics.getTopicConfigTable().size());
            case "batchTopic":
                TopicConfig made = new TopicConfig(words[1], 4, 4);
                made.setAttributes(new HashMap<>(Map.of("+queue.type", "BatchCQ")));
                topics.updateTopicConfig(made);
                return Map.of("attributes", topics.selectTopicConfig(words[1]).getAttributes());
            case "liteTopic":
                TopicConfig parent = new TopicConfig(words[1], 4, 4);
                parent.setAttributes(new HashMap<>(Map.of("+message.type", "LITE")));
                topics.updateTopicConfig(parent);
                return Map.of("type", parent.getTopicMessageType().name());
            case "perm":
                TopicConfig changed = new TopicConfig(topics.selectTopicConfig(words[1]));
                changed.setPerm(Integer.parseInt(words[2]));
                changed.setAttributes(new HashMap<>()); // what is to change of them
                topics.updateTopicConfig(changed);
                return Map.of("perm", topics.selectTopicConfig(words[1]).getPerm());
            case "send":
                return counted.send(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4],
                    words.length > 5 ? words[5] : null);
            case "consume":
                return counted.consume(words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "groups":
                for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                    SubscriptionGroupConfig group = new SubscriptionGroupConfig();
                    group.setGroupName(words[1] + i);
                    broker.getSubscriptionGroupManager().putSubscriptionGroupConfig(group);
                }
                broker.getSubscriptionGroupManager().getDataVersion().nextVersion();
                return Map.of("count", broker.getSubscriptionGroupManager().getSubscriptionGroupTable().size());
            case "put":
                return put(broker, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), null,
                    words.length > 4 ? words[4] : "k");
            case "timer":
                return put(broker, words[1], 1, Integer.parseInt(words[2]), words[3], words.length > 4 ? words[4] : "k");
            case "offset":
                broker.getConsumerOffsetManager().commitOffset("here", words[2], words[1], Integer.parseInt(words[3]),
                    Long.parseLong(words[4]));
                return Map.of();
            case "delay":
                broker.getScheduleMessageService().getOffsetTable().put(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return Map.of();
            case "mode":
                SetMessageRequestModeRequestBody mode = new SetMessageRequestModeRequestBody();
                mode.setTopic(words[1]);
                mode.setConsumerGroup(words[2]);
                mode.setMode(MessageRequestMode.POP);
                mode.setPopShareQueueNum(3);
                broker.getQueryAssignmentProcessor().getMessageRequestModeManager().setMessageRequestMode(words[1], words[2], mode);
                return Map.of();
            case "forbid":
                broker.getSubscriptionGroupManager().updateForbidden(words[1], words[2], 1, true);
                return Map.of();
            case "delete":
                topics.deleteTopicConfig(words[1]);
                broker.getMessageStore().deleteTopics(Set.of(words[1]));
                return Map.of("count", topics.getTopicConfigTable().size());
            case "metadata":
                return metadata(broker);
            case "fail":
                return fail(broker, words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
            case "read":
                return read(broker, words[1]);
            case "pull":
                return pull(broker, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "batches":
                return clients.batches(words[1], Integer.parseInt(words[2]), text(words, 3).split(" "));
            case "transactions":
                return clients.send(words[1], words[2], words[3], Integer.parseInt(words[4]), words[5]);
            case "decide":
                return clients.decide(words[1], words[2], words[3]);
            case "pop":
                return clients.pop(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), words.length > 5);
            case "ack":
                return clients.ack(words[1], words[2], words[3], words.length > 4 ? text(words, 4) : null);
            case "delayed":
                return clients.delayed(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
            case "subscribe":
                return clients.subscribe(words[1], words[2], text(words, 3));
            case "filter":
                return filter(broker, words[1], words[2]);
            case "halves":
                return halves(broker);
            case "routed":
                return clients.routed(words[1]);
            case "open":
                return clients.open();
            case "check":
                return clients.check();
            case "checks":
                return clients.checks(words[1]);
            case "register":
                return register(broker);
            case "role":
                return role(broker);
            default:
                return Map.of("end", broker.getMessageStore().getMaxPhyOffset());
        }
    }

    private static Object put(BrokerController broker, String topic, int queues, int count, String delay, String name) {
        Map<String, Integer> statuses = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(topic);
            message.setQueueId(i % queues);
            message.setBody(("from a broker " + i).getBytes(StandardCharsets.UTF_8));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("10.0.0.1", 1));
            message.setStoreHost(broker.getStoreHost());
            MessageAccessor.putProperty(message, "KEYS", name + i);
            if (delay != null) {
                MessageAccessor.putProperty(message, "TIMER_DELAY_MS", delay);
                MessageClientIDSetter.setUniqID(message); // the timer in RocksDB keeps none without, and a client has one
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            statuses.merge(broker.getMessageStore().putMessage(message).getPutMessageStatus().name(), 1, Integer::sum);
        }
        return Map.of("statuses", statuses, "end", broker.getMessageStore().getMaxPhyOffset());
    }

    /** What a broker of a set under a controller is, as it knows it, and how far its log goes. */
    private static Object role(BrokerController broker) {
        var replicas = broker.getReplicasManager();
        var store = broker.getMessageStore();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("state", String.valueOf((Object) replicas.getState()));
        answer.put("master", replicas.isMasterState());
        answer.put("id", replicas.getBrokerControllerId());
        answer.put("epoch", replicas.getMasterEpoch());
        answer.put("inSync", ((AutoSwitchHAService) store.getHaService()).getLocalSyncStateSet().stream().sorted().toList());
        answer.put("confirm", store.getConfirmOffset());
        answer.put("end", store.getMaxPhyOffset());
        answer.put("behind", store.dispatchBehindBytes());
        return answer;
    }

    /** What a consumer asks for that returns a message with a delay level below 0. */
    private static Object fail(BrokerController broker, String group, String topic, int queue, long offset) throws Exception {
        var found = broker.getMessageStore().getMessage(group, topic, queue, offset, 1, null);
        MessageExt message = MessageDecoder.decode(found.getMessageBufferList().get(0));
        found.release();
        var header = new ConsumerSendMsgBackRequestHeader();
        header.setGroup(group);
        header.setOriginTopic(topic);
        header.setOffset(message.getCommitLogOffset());
        header.setOriginMsgId(message.getMsgId());
        header.setDelayLevel(-1);
        header.setMaxReconsumeTimes(16);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header);
        request.makeCustomHeaderToNet();
        RemotingCommand response = broker.getSendMessageProcessor().processRequest(null, request);
        return Map.of("code", response.getCode(), "remark", String.valueOf(response.getRemark()), "msgId", message.getMsgId());
    }

    /** What lies in a topic, queue by queue: keys, bodies, and the milliseconds from birth to the place there. */
    private static Object read(BrokerController broker, String topic) throws Exception {
        List<MessageExt> found = stored(broker, topic, null);
        return Map.of(
            "keys", found.stream().map(MessageExt::getKeys).toList(),
            "bodies", found.stream().map(message -> new String(message.getBody(), StandardCharsets.UTF_8)).toList(),
            "ages", found.stream().map(message -> message.getStoreTimestamp() - message.getBornTimestamp()).toList());
    }

    private static Object pull(BrokerController broker, String topic, int queue, long offset) throws Exception {
        GetMessageResult found;
        try {
            found = broker.getMessageStore().getMessage("reader", topic, queue, offset, 32, null);
        } catch (RuntimeException fault) { // a client gets it as a system error
            return Map.of("status", fault.getClass().getSimpleName());
        }
        List<MessageExt> messages = new ArrayList<>();
        for (var buffer : found.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer);
            if (MessageSysFlag.check(message.getSysFlag(), MessageSysFlag.INNER_BATCH_FLAG)) {
                MessageDecoder.decodeMessage(message, messages);
            } else {
                messages.add(message);
            }
        }
        found.release();
        return Map.of(
            "status", found.getStatus().name(), "next", found.getNextBeginOffset(),
            "min", found.getMinOffset(), "max", found.getMaxOffset(),
            "offsets", messages.stream().map(MessageExt::getQueueOffset).toList(),
            "bodies", messages.stream().map(message -> new String(message.getBody(), StandardCharsets.UTF_8)).toList());
    }

    private static List<MessageExt> stored(BrokerController broker, String topic, MessageFilter filter) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (int queue = 0; queue < 4; queue++) {
            long at = broker.getMessageStore().getMinOffsetInQueue(topic, queue);
            while (at < broker.getMessageStore().getMaxOffsetInQueue(topic, queue)) {
                var found = broker.getMessageStore().getMessage("reader", topic, queue, at, 1, filter);
                found.getMessageBufferList().forEach(buffer -> messages.add(MessageDecoder.decode(buffer)));
                found.release();
                at = Math.max(at + 1, found.getNextBeginOffset());
            }
        }
        return messages;
    }

    /** What the group's expression is and lets through of a topic, as the broker knows it without a consumer. */
    private static Object filter(BrokerController broker, String group, String topic) throws Exception {
        var known = broker.getConsumerFilterManager().get(topic, group);
        if (known == null) {
            return Map.of("expression", "none", "keys", List.of());
        }
        var subscription = FilterAPI.build(topic, known.getExpression(), known.getExpressionType());
        var filter = new ExpressionMessageFilter(subscription, known, broker.getConsumerFilterManager());
        return Map.of("expression", known.getExpression(), "version", known.getClientVersion(),
            "bits", known.getBloomFilterData().toString(),
            "keys", stored(broker, topic, filter).stream().map(MessageExt::getKeys).toList());
    }

    private static Object halves(BrokerController broker) {
        Map<String, Long> halves = new TreeMap<>();
        broker.getTransactionalMessageService().getTransactionMetrics().getTransactionCounts()
            .forEach((topic, metric) -> halves.put(topic, metric.getCount().get()));
        return halves;
    }

    /** Registers it at its name server now; says what master came of that, and whom its log follows. */
    private static Object register(BrokerController broker) {
        broker.registerBrokerAll(true, false, true);
        var client = broker.getMessageStore().getHaService().getHAClient();
        Map<String, Object> masters = new TreeMap<>();
        masters.put("master", broker.getSlaveSynchronize().getMasterAddr());
        masters.put("haMaster", client == null ? null : client.getHaMasterAddress());
        return masters;
    }

    /** What the managers of this broker have. */
    private static Object metadata(BrokerController broker) {
        Map<String, Object> all = new LinkedHashMap<>();
        Map<String, String> topics = new TreeMap<>();
        broker.getTopicConfigManager().getTopicConfigTable().forEach((name, config) -> topics.put(name, config.toString()));
        all.put("topics", topics);
        Map<String, String> groups = new TreeMap<>();
        broker.getSubscriptionGroupManager().getSubscriptionGroupTable()
            .forEach((name, config) -> groups.put(name, config.toString()));
        all.put("groups", groups);
        all.put("forbidden", text(broker.getSubscriptionGroupManager().getForbiddenTable()));
        all.put("offsets", text(broker.getConsumerOffsetManager().getOffsetTable()));
        all.put("delays", text(broker.getScheduleMessageService().getOffsetTable()));
        all.put("modes", JSON.parse(broker.getQueryAssignmentProcessor().getMessageRequestModeManager().encode()));
        all.put("versions", Map.of(
            "topics", broker.getTopicConfigManager().getDataVersion().toJson(),
            "groups", broker.getSubscriptionGroupManager().getDataVersion().toJson(),
            "offsets", broker.getConsumerOffsetManager().getDataVersion().toJson()));
        return all;
    }

    private static Map<String, String> text(Map<?, ?> table) {
        Map<String, String> text = new TreeMap<>();
        table.forEach((key, value) -> text.put(String.valueOf(key), value instanceof Map<?, ?> map
            ? new TreeMap<Object, Object>(map).toString() : String.valueOf(value)));
        return text;
    }

    /** The words from one on, as they were said. */
    private static String text(String[] words, int first) {
        return String.join(" ", Arrays.asList(words).subList(first, words.length));
    }

    private static void line(Object object) {
        OUT.println(JSON.toJSONString(object));
        OUT.flush();
    }
}
