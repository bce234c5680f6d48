<?php
// A request: connects, works, and ends. With `persistent` in its query, the connection stays with the process of PHP-FPM.
$checks = 0;
$wrong = [];
function same(string $kind, string $what, mixed $got, mixed $expected): void
{
    global $checks, $wrong;
    $checks += 1;
    if ($got !== $expected) {
        $wrong[] = [$kind, "$what: got " . var_export($got, true) . ', expected ' . var_export($expected, true)];
    }
}

function one(PDO $db, string $sql, array $values = []): mixed
{
    $statement = $db->prepare($sql);
    $statement->execute($values);
    return $statement->fetchColumn();
}

function again(PDO $db, callable $work): void
{
    for ($attempt = 0; ; $attempt += 1) {
        try {
            $db->beginTransaction();
            $work();
            $db->commit();
            return;
        } catch (PDOException $error) {
            if ($db->inTransaction()) {
                $db->rollBack();
            }
            if ($error->getCode() !== '40001' || $attempt === 9) {
                throw $error;
            }
            usleep(random_int(0, 20000));
        }
    }
}

try {
    parse_str($_SERVER['QUERY_STRING'], $query);
    $persistent = isset($query['persistent']);
    $name = 'fpm-' . $query['request'];
    $dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s;sslmode=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'), getenv('PGSSLMODE'));
    $db = new PDO($dsn, getenv('PGUSER'), getenv('PGPASSWORD'), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_PERSISTENT => $persistent]);
    if (!$persistent) {
        same('lost settings', 'of another request', str_starts_with(one($db, 'SHOW application_name'), 'fpm-'), false);
    }
    $db->exec("SET application_name = '$name'");
    $id = one($db, 'INSERT INTO fpm_visits (path, stars) VALUES (?, 0) RETURNING id', ["/$name"]);
    for ($n = 0; $n < 2; $n += 1) {
        again($db, function () use ($db, $id) {
            $stars = one($db, 'SELECT stars FROM fpm_visits WHERE id = ?', [$id]);
            $db->prepare('UPDATE fpm_visits SET stars = ? WHERE id = ?')->execute([$stars + 1, $id]);
        });
    }
    same('wrong rows', 'added', one($db, 'SELECT stars FROM fpm_visits WHERE id = ?', [$id]), 2);
    same('lost settings', 'application_name', one($db, 'SHOW application_name'), $name);
    $delete = $db->prepare('DELETE FROM fpm_visits WHERE path = ?');
    $delete->execute(["/$name"]);
    same('wrong rows', 'deleted', $delete->rowCount(), 1);
} catch (Throwable $error) {
    // A connection that was opened before the table was made fails once with a conflict of the schema.
    if (!str_contains($error->getMessage(), 'OC001')) {
        $wrong[] = ['errors', (string) $error];
    }
}
echo json_encode(['checks' => $checks, 'wrong' => $wrong]);
