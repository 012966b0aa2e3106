SELECT attempts.fence, attempts.outcome, attempts.error_class
FROM attempts
WHERE attempts.fence = any(%(p_fences)s)
