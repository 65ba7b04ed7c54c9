// Push consumer and producer of rocketmq-client-go.
//
//	go_client push PORT GROUP TOPIC EXPRESSION COUNT
//
// prints a JSON line for each message, once each. Ends when COUNT messages have arrived, or after a minute.
//
//	go_client send PORT GROUP TOPIC KIND COUNT
//
// sends COUNT messages and prints a line for each result: sync, async, batch, delay or select; oneway has none.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const seconds = 60

type row struct {
	Topic          string            `json:"topic"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	Phy            int64             `json:"phy"`
	StoreSize      int32             `json:"storeSize"`
	BodyCRC        int32             `json:"bodyCRC"`
	Flag           int32             `json:"flag"`
	BornTimestamp  int64             `json:"bornTimestamp"`
	StoreTimestamp int64             `json:"storeTimestamp"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	Body           string            `json:"body"`
	Properties     map[string]string `json:"properties"`
}

type found struct {
	sync.Mutex
	seen map[string]bool
	left int
	done chan struct{}
}

func (f *found) add(message *primitive.MessageExt) {
	f.Lock()
	defer f.Unlock()
	key := fmt.Sprintf("%s/%d/%d", message.Topic, message.Queue.QueueId, message.QueueOffset)
	if f.seen[key] {
		return
	}
	f.seen[key] = true
	digest := sha256.Sum256(message.Body)
	line, _ := json.Marshal(row{
		message.Topic, message.Queue.QueueId, message.QueueOffset, message.CommitLogOffset, message.StoreSize,
		message.BodyCRC, message.Flag, message.BornTimestamp, message.StoreTimestamp, message.ReconsumeTimes,
		hex.EncodeToString(digest[:]), message.GetProperties(),
	})
	fmt.Println(string(line))
	f.left--
	if f.left == 0 {
		close(f.done)
	}
}

func main() {
	rlog.SetLogLevel("error")
	act := map[string]func([]string) error{"push": consume, "send": send}[os.Args[1]]
	if err := act(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func consume(words []string) error {
	port, group, topic, expression := words[0], words[1], words[2], words[3]
	count, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	received := &found{seen: map[string]bool{}, left: count, done: make(chan struct{})}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{"127.0.0.1:" + port})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	err = client.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range messages {
			received.add(each)
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err = client.Start(); err != nil {
		return err
	}
	select {
	case <-received.done:
	case <-time.After(seconds * time.Second):
	}
	return client.Shutdown()
}
