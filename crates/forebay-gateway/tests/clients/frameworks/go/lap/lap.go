// Package lap is what the clients in Go share: laps, and the count of what went wrong. See lap.py.
package lap

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Connections is how many there are.
var Connections = 4

// Copies tells whether the server runs COPY.
var Copies = os.Getenv("COPIES") != "0"

// Migrates tells whether this is the run that makes the tables.
var Migrates = os.Getenv("MIGRATE") == "1"

var lock sync.Mutex
var notes = []string{}
var counts = map[string]int{"rounds": 0, "checks": 0, "errors": 0, "lost settings": 0, "wrong rows": 0}

func init() {
	if n, err := strconv.Atoi(os.Getenv("CONNECTIONS")); err == nil {
		Connections = n
	}
}

func note(text string) {
	if len(notes) < 5 {
		notes = append(notes, text)
	}
}

func same(kind, what string, got, expected interface{}) {
	lock.Lock()
	defer lock.Unlock()
	counts["checks"]++
	if got != expected {
		counts[kind]++
		note(fmt.Sprintf("%s: got %v, expected %v", what, got, expected))
	}
}

// Row compares what came back.
func Row(what string, got, expected interface{}) { same("wrong rows", what, got, expected) }

// Setting compares a setting.
func Setting(what string, got, expected interface{}) { same("lost settings", what, got, expected) }

// Pause waits for a moment.
func Pause() { time.Sleep(time.Duration(mathrand.Intn(20)) * time.Millisecond) }

// Key is a random key.
func Key() (b [16]byte) {
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	return b
}

// UUID is a random key as text.
func UUID() string {
	b := Key()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Laps works until it is told to end.
func Laps(round func(number, round int) error) {
	seconds := 2.0
	if n, err := strconv.ParseFloat(os.Getenv("LAP"), 64); err == nil {
		seconds = n
	}
	in := bufio.NewReader(os.Stdin)
	for {
		end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
		var group sync.WaitGroup
		for number := 0; number < Connections; number++ {
			group.Add(1)
			go func(number int) {
				defer group.Done()
				for time.Now().Before(end) {
					lock.Lock()
					counts["rounds"]++
					n := counts["rounds"]
					lock.Unlock()
					// A connection that was opened before the table was made fails once with a conflict of the schema.
					if err := round(number, n); err != nil && !strings.Contains(err.Error(), "OC001") {
						lock.Lock()
						counts["errors"]++
						note(err.Error())
						lock.Unlock()
					}
				}
			}(number)
		}
		group.Wait()
		fmt.Println("idle")
		if line, _ := in.ReadString('\n'); strings.TrimSpace(line) != "go" {
			break
		}
	}
	all := map[string]interface{}{"notes": notes}
	for kind, count := range counts {
		all[kind] = count
	}
	text, _ := json.Marshal(all)
	fmt.Println(string(text))
}
