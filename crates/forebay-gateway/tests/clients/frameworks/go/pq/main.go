// lib/pq with database/sql: prepared statements on several connections, COPY, transactions that are run again. See lap.py for what a lap is.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/lib/pq"

	"clients/lap"
)

var db *sql.DB
var add *sql.Stmt

func code(err error) string {
	var failure *pq.Error
	if errors.As(err, &failure) {
		return string(failure.Code)
	}
	return fmt.Sprint(err)
}

func again(work func(*sql.Tx) error) error {
	for attempt := 0; ; attempt++ {
		tx, err := db.Begin()
		if err == nil {
			if err = work(tx); err == nil {
				err = tx.Commit()
			} else {
				tx.Rollback()
			}
		}
		if err == nil || code(err) != "40001" || attempt == 9 {
			return err
		}
		lap.Pause()
	}
}

func round(number, round int) error {
	site := fmt.Sprintf("pq-%d-%d", number, round)
	var name string
	if err := db.QueryRow("SHOW application_name").Scan(&name); err != nil {
		return err
	}
	lap.Setting("application_name", name, "pq")
	var sum int
	if err := add.QueryRow(round).Scan(&sum); err != nil {
		return err
	}
	lap.Row("prepared", sum, round+1)
	key := lap.UUID()
	if _, err := db.Exec("INSERT INTO pq_visits (id, site, stars) VALUES ($1, $2, 0)", key, site); err != nil {
		return err
	}
	for n := 0; n < 3; n++ {
		err := again(func(tx *sql.Tx) error {
			var stars int
			if err := tx.QueryRow("SELECT stars FROM pq_visits WHERE id = $1", key).Scan(&stars); err != nil {
				return err
			}
			_, err := tx.Exec("UPDATE pq_visits SET stars = $1 WHERE id = $2", stars+1, key)
			return err
		})
		if err != nil {
			return err
		}
	}
	expected := "3 1"
	if lap.Copies {
		expected = "13 5"
		err := again(func(tx *sql.Tx) error {
			in, err := tx.Prepare(pq.CopyIn("pq_visits", "id", "site", "stars"))
			if err != nil {
				return err
			}
			for n := 1; n <= 4; n++ {
				if _, err := in.Exec(lap.UUID(), site, n); err != nil {
					return err
				}
			}
			if _, err := in.Exec(); err != nil {
				return err
			}
			return in.Close()
		})
		if err != nil {
			return err
		}
	}
	var count int
	if err := db.QueryRow("SELECT sum(stars), count(*) FROM pq_visits WHERE site = $1", site).Scan(&sum, &count); err != nil {
		return err
	}
	lap.Row("summed", fmt.Sprint(sum, count), expected)
	_, err := db.Exec("INSERT INTO pq_visits (id, site) VALUES ($1, $2)", key, site)
	lap.Row("a key twice", code(err), "23505")
	_, err = db.Exec("DELETE FROM pq_visits WHERE site = $1", site)
	return err
}

func main() {
	var err error
	db, err = sql.Open("postgres", "application_name=pq")
	if err == nil {
		db.SetMaxOpenConns(lap.Connections)
		db.SetMaxIdleConns(lap.Connections)
	}
	if err == nil && lap.Migrates {
		_, err = db.Exec("CREATE TABLE pq_visits (id uuid PRIMARY KEY, site text, stars int)")
	}
	if err == nil {
		add, err = db.Prepare("SELECT $1::int + 1")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if lap.Migrates {
		return
	}
	lap.Laps(round)
}
