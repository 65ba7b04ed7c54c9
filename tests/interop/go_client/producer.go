package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const level = 1 // of a delayed message: a second

type result struct {
	Status      int    `json:"status"`
	MsgID       string `json:"msgId"`
	OffsetMsgID string `json:"offsetMsgId"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
}

// third sends each message to the queue of its number, as a program with orders does.
type third struct{}

func (third) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	number, _ := strconv.Atoi(message.GetProperty("number"))
	return queues[number%len(queues)]
}

func send(words []string) error {
	port, group, topic, kind := words[0], words[1], words[2], words[3]
	count, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	options := []producer.Option{
		producer.WithGroupName(group),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{"127.0.0.1:" + port})),
	}
	if kind == "select" {
		options = append(options, producer.WithQueueSelector(third{}))
	}
	client, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	if err = client.Start(); err != nil {
		return err
	}
	if err = sent(client, kind, messages(topic, kind, count)); err != nil {
		return err
	}
	return client.Shutdown()
}

func messages(topic, kind string, count int) []*primitive.Message {
	made := make([]*primitive.Message, count)
	for number := range made {
		body := []byte(fmt.Sprintf("%s %d \x00é", kind, number))
		made[number] = primitive.NewMessage(topic, body)
		made[number].WithTag("red").WithKeys([]string{fmt.Sprintf("k%d", number), "all"})
		made[number].WithProperty("number", strconv.Itoa(number))
		if kind == "delay" {
			made[number].WithDelayTimeLevel(level)
		}
	}
	return made
}

func sent(client rocketmq.Producer, kind string, all []*primitive.Message) error {
	background := context.Background()
	if kind == "batch" {
		return told(client.SendSync(background, all...))
	}
	for _, each := range all {
		var err error
		switch kind {
		case "oneway":
			err = client.SendOneWay(background, each)
		case "async":
			err = async(client, each)
		default:
			err = told(client.SendSync(background, each))
		}
		if err != nil {
			return err
		}
	}
	if kind == "oneway" {
		return received(client, all[0].Topic)
	}
	return nil
}

// received returns after the server has received the one-way messages. The client asks for responses to them and
// does not wait: if it closes before it has read these, its kernel may drop what it has not sent yet.
func received(client rocketmq.Producer, topic string) error {
	_, err := client.SendSync(context.Background(), primitive.NewMessage(topic+"-end", []byte("end")))
	return err
}

func async(client rocketmq.Producer, message *primitive.Message) error {
	var done sync.WaitGroup
	var fault error
	done.Add(1)
	err := client.SendAsync(context.Background(), func(_ context.Context, found *primitive.SendResult, err error) {
		fault = told(found, err)
		done.Done()
	}, message)
	if err != nil {
		return err
	}
	done.Wait()
	return fault
}

func told(found *primitive.SendResult, err error) error {
	if err != nil {
		return err
	}
	line, err := json.Marshal(result{
		int(found.Status), found.MsgID, found.OffsetMsgID, found.MessageQueue.QueueId, found.QueueOffset,
	})
	fmt.Println(string(line))
	return err
}
