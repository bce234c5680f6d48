// pgx: its cache of prepared statements, its pool, batches, COPY, transactions that are run again. See lap.py for what a lap is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"

	"clients/lap"
)

var pool *pgxpool.Pool

func again(ctx context.Context, work func(pgx.Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := pool.BeginFunc(ctx, work)
		var failure *pgconn.PgError
		if !errors.As(err, &failure) || failure.Code != "40001" || attempt == 9 {
			return err
		}
		lap.Pause()
	}
}

func round(number, round int) error {
	ctx := context.Background()
	site := fmt.Sprintf("pgx-%d-%d", number, round)
	var name string
	if err := pool.QueryRow(ctx, "SHOW application_name").Scan(&name); err != nil {
		return err
	}
	lap.Setting("application_name", name, "pgx")
	for n := 0; n < 5; n++ {
		var sum int
		if err := pool.QueryRow(ctx, fmt.Sprintf("SELECT $1::int + %d", n), round).Scan(&sum); err != nil {
			return err
		}
		lap.Row("cached", sum, round+n)
	}
	key := lap.UUID()
	err := again(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for n := 0; n < 20; n++ {
			id := lap.UUID()
			if n == 0 {
				id = key
			}
			batch.Queue("INSERT INTO pgx_visits (id, site, stars) VALUES ($1, $2, $3)", id, site, n)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return err
	}
	for n := 0; n < 3; n++ {
		err := again(ctx, func(tx pgx.Tx) error {
			var stars int
			if err := tx.QueryRow(ctx, "SELECT stars FROM pgx_visits WHERE id = $1", key).Scan(&stars); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE pgx_visits SET stars = $1 WHERE id = $2", stars+1, key)
			return err
		})
		if err != nil {
			return err
		}
	}
	var sum, count int
	if err := pool.QueryRow(ctx, "SELECT sum(stars), count(*) FROM pgx_visits WHERE site = $1", site).Scan(&sum, &count); err != nil {
		return err
	}
	lap.Row("summed", fmt.Sprint(sum, count), "193 20")
	err = pool.BeginFunc(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO pgx_visits (id, site) VALUES ($1, $2)", key, site+"-never")
		return err
	})
	code := "none"
	var failure *pgconn.PgError
	if errors.As(err, &failure) {
		code = failure.Code
	}
	lap.Row("a key twice", code, "23505")
	if lap.Copies {
		rows := [][]interface{}{{lap.Key(), site, 7}, {lap.Key(), site, 8}}
		copied, err := pool.CopyFrom(ctx, pgx.Identifier{"pgx_visits"}, []string{"id", "site", "stars"}, pgx.CopyFromRows(rows))
		if err != nil {
			return err
		}
		lap.Row("copied", int(copied), 2)
	}
	_, err = pool.Exec(ctx, "DELETE FROM pgx_visits WHERE site = $1", site)
	return err
}

func main() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("application_name=pgx")
	if err == nil {
		config.MaxConns = int32(lap.Connections)
		pool, err = pgxpool.ConnectConfig(ctx, config)
	}
	if err == nil && lap.Migrates {
		_, err = pool.Exec(ctx, "CREATE TABLE pgx_visits (id uuid PRIMARY KEY, site text, stars int)")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
	if lap.Migrates {
		return
	}
	lap.Laps(round)
}
