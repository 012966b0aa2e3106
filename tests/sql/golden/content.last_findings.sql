SELECT findings.topic_id, findings.rule, findings.message, findings.severity, findings.line, findings.column_number
FROM findings
JOIN (
  SELECT findings.topic_id AS topic_id, max(findings.fence) AS fence
  FROM findings
  JOIN attempts ON attempts.fence = findings.fence
  WHERE findings.topic_id = any(%(p_topic_ids)s) AND attempts.outcome = %(outcome_1)s::VARCHAR
  GROUP BY findings.topic_id
) AS newest ON newest.topic_id = findings.topic_id AND findings.fence = newest.fence
ORDER BY findings.id
