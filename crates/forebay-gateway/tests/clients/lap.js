// What the Node clients share: laps, and the count of what went wrong. See lap.py.

import { createInterface } from "node:readline";

export const CONNECTIONS = Number(process.env.CONNECTIONS ?? 4);
const LAP = Number(process.env.LAP ?? 2) * 1000;
export const UNDOES_SET = process.env.UNDOES_SET === "1";
export const COPIES = (process.env.COPIES ?? "1") === "1";

const counts = { rounds: 0, checks: 0, errors: 0, "lost settings": 0, "wrong rows": 0, notes: [] };

function note(text) {
  if (counts.notes.length < 5) counts.notes.push(text);
}

function same(kind, what, got, expected) {
  counts.checks += 1;
  const [a, b] = [JSON.stringify(got), JSON.stringify(expected)];
  if (a === b) return;
  counts[kind] += 1;
  note(`${what}: got ${String(a).slice(0, 200)}, expected ${b.slice(0, 200)}`);
}

export const row = (what, got, expected) => same("wrong rows", what, got, expected);
export const setting = (what, got, expected) => same("lost settings", what, got, expected);

// The code of the error that the work must end with.
export async function refused(what, code, work) {
  let got = "none";
  try {
    await work();
  } catch (error) {
    got = error.code ?? String(error);
  }
  row(what, got, code);
}

export const pause = () => new Promise((done) => setTimeout(done, [0, 0, 2, 20][Math.floor(Math.random() * 4)]));

export async function laps(openOne, roundOf) {
  const clients = [];
  for (let number = 0; number < CONNECTIONS; number += 1) clients.push(await openOne(number));
  const work = async (number, end) => {
    while (Date.now() < end) {
      const round = (counts.rounds += 1);
      try {
        await roundOf(clients[number], number, round);
      } catch (error) {
        counts.errors += 1;
        note(`${error.stack}\n${JSON.stringify(error)}`);
        clients[number] = await openOne(number);
      }
    }
  };
  const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  let answer = { value: "go" };
  while (!answer.done && answer.value.trim() === "go") {
    const end = Date.now() + LAP;
    await Promise.all(clients.map((_, number) => work(number, end)));
    console.log("idle");
    answer = await answers.next();
  }
  console.log(JSON.stringify(counts));
  process.exit(0);
}
