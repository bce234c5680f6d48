<?php
// PHP's PDO: statements that the server prepares and PDO deallocates with SQL, emulated ones, COPY, attributes of a transaction.
// See lap.py for what a lap is.

$connections = (int) (getenv('CONNECTIONS') ?: 4);
$seconds = (float) (getenv('LAP') ?: 2);
$undoesSet = getenv('UNDOES_SET') === '1';
$copies = getenv('COPIES') !== '0';
$counts = ['rounds' => 0, 'checks' => 0, 'errors' => 0, 'lost settings' => 0, 'wrong rows' => 0, 'notes' => []];

function note(string $text): void
{
    global $counts;
    if (count($counts['notes']) < 5) {
        $counts['notes'][] = $text;
    }
}

function same(string $kind, string $what, mixed $got, mixed $expected): void
{
    global $counts;
    $counts['checks'] += 1;
    if ($got !== $expected) {
        $counts[$kind] += 1;
        note("$what: got " . substr(var_export($got, true), 0, 200) . ', expected ' . substr(var_export($expected, true), 0, 200));
    }
}

function row(string $what, mixed $got, mixed $expected): void
{
    same('wrong rows', $what, $got, $expected);
}

function refused(string $what, string $code, callable $work): void
{
    try {
        $work();
        row($what, 'none', $code);
    } catch (PDOException $error) {
        row($what, (string) $error->errorInfo[0], $code);
    }
}

function key_of(): string
{
    return preg_replace('/^(.{8})(.{4})(.{4})(.{4})(.{12})$/', '$1-$2-$3-$4-$5', bin2hex(random_bytes(16)));
}

function pause(): void
{
    usleep([0, 0, 2000, 20000][random_int(0, 3)]);
}

final class Client
{
    public PDO $pdo;
    public string $name;
    public PDOStatement $kept;

    public function __construct(public int $number)
    {
        $dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s;sslmode=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'), getenv('PGSSLMODE'));
        putenv("PGAPPNAME=pdo-$number");
        $this->name = "pdo-$number";
        $this->pdo = new PDO($dsn, getenv('PGUSER'), getenv('PGPASSWORD'), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
        // It stays prepared by name for as long as the object lives.
        $this->kept = $this->pdo->prepare('SELECT CAST(? AS int) + 1');
    }

    public function one(string $sql, array $values = [], bool $emulated = false): mixed
    {
        $statement = $this->pdo->prepare($sql, [PDO::ATTR_EMULATE_PREPARES => $emulated]);
        $statement->execute($values);
        return $statement->fetchColumn();
        // The statement is deallocated here, with SQL.
    }

    public function settings(): void
    {
        same('lost settings', 'application_name', $this->one('SHOW application_name'), $this->name);
    }

    public function round(int $round): void
    {
        global $undoesSet, $copies;
        $this->settings();
        $this->kept->execute([$round]);
        row('kept', $this->kept->fetchColumn(), $round + 1);
        for ($n = 0; $n < 5; $n += 1) {
            row('prepared', $this->one("SELECT CAST(? AS int) + $n", [$round]), $round + $n);
        }
        row('emulated', $this->one("SELECT CAST(? AS int) + 7", [$round], true), $round + 7);
        pause();
        $this->name = "pdo-$this->number-$round";
        $this->pdo->exec("SET application_name = '$this->name'");
        pause();
        $this->transaction($round);
        $this->settings();
        refused('an error', '22012', fn () => $this->one('SELECT CAST(? AS int) / 0', [$round]));
        refused('a bad statement', '42601', fn () => $this->pdo->exec('SELECT 1; SELEKT 2'));
        if ($round % 3 === 0) {
            row('large row', strlen($this->one("SELECT repeat('x', 300000)")), 300000);
            row('large parameter', $this->one('SELECT length(CAST(? AS text))', [str_repeat('y', 300000)]), 300000);
        }
        if ($copies && $round % 3 === 1) {
            $this->copy($round);
        }
        if ($round % 5 === 0) {
            $this->pdo->exec('RESET ALL');
            $this->name = "pdo-$this->number";
        }
        if ($round % 7 === 0) {
            $this->pdo->exec('DEALLOCATE ALL');
            $this->kept = $this->pdo->prepare('SELECT CAST(? AS int) + 1');
        }
        $this->settings();
    }

    private function transaction(int $round): void
    {
        global $undoesSet;
        $key = key_of();
        $this->pdo->beginTransaction();
        $this->pdo->prepare('INSERT INTO judged (id, client, n) VALUES (?, ?, ?)')->execute([$key, "pdo-$this->number", $round]);
        if ($undoesSet) {
            $this->pdo->exec("SET LOCAL application_name = 'local'");
        }
        pause();
        row('own row', $this->one('SELECT n FROM judged WHERE id = ?', [$key]), $round);
        $this->pdo->commit();
        row('committed', $this->one('SELECT n FROM judged WHERE id = ?', [$key]), $round);
        $this->pdo->beginTransaction();
        if ($undoesSet) {
            $this->pdo->exec("SET application_name = 'undone'");
        }
        $this->pdo->prepare('UPDATE judged SET n = -1 WHERE id = ?')->execute([$key]);
        refused('in a transaction', '22012', fn () => $this->one('SELECT 1 / CAST(? AS int)', [0]));
        refused('a failed transaction', '25P02', fn () => $this->pdo->exec('SELECT 1'));
        $this->pdo->rollBack();
        row('rolled back', $this->one('SELECT n FROM judged WHERE id = ?', [$key]), $round);
        $this->pdo->prepare('DELETE FROM judged WHERE id = ?')->execute([$key]);
    }

    private function copy(int $round): void
    {
        $name = "pdo-copy-$this->number-$round";
        $this->pdo->pgsqlCopyFromArray('judged', array_map(fn ($n) => key_of() . "\t$name\t$n\n", range(0, 19)), "\t", '\\\\N', 'id, client, n');
        row('copied', $this->one('SELECT sum(n) FROM judged WHERE client = ?', [$name]), 190);
        row('copied out', count($this->pdo->pgsqlCopyToArray("(SELECT n FROM judged WHERE client = '$name')")), 20);
        $this->pdo->prepare('DELETE FROM judged WHERE client = ?')->execute([$name]);
    }
}

$clients = array_map(fn ($number) => new Client($number), range(0, $connections - 1));
do {
    $end = microtime(true) + $seconds;
    while (microtime(true) < $end) {
        foreach ($clients as $number => $client) {
            $counts['rounds'] += 1;
            try {
                $client->round($counts['rounds']);
            } catch (Throwable $error) {
                $counts['errors'] += 1;
                note((string) $error);
                $clients[$number] = new Client($number);
            }
        }
    }
    echo "idle\n";
} while (trim((string) fgets(STDIN)) === 'go');
echo json_encode($counts), "\n";
