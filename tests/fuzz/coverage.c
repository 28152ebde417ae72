/* What code that tells its branches calls where nothing listens; a fuzz target's driver.c has its own. */
void __sanitizer_cov_trace_pc(void);

__attribute__((weak, no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void) {}
