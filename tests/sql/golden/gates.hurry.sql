SET LOCAL lock_timeout = '500ms'
