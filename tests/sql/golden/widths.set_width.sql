UPDATE gates
SET width=%(p_width)s::INTEGER, passed=CASE WHEN (CAST(%(p_width)s::INTEGER AS INTEGER) = 1) THEN 0 ELSE gates.passed
    END, strict_since=CASE WHEN (CAST(%(p_width)s::INTEGER AS INTEGER) = 1) THEN clock_timestamp() ELSE
    gates.strict_since END
WHERE gates.id = any(CAST(%(gates)s AS BIGINT[]))
