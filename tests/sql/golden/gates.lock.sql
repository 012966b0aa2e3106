SELECT gates.id
FROM gates
WHERE gates.id = any(CAST(%(gates)s AS BIGINT[]))
ORDER BY gates.id
FOR NO KEY UPDATE SKIP LOCKED
