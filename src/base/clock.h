/* Milliseconds of a clock that only goes on: differences mean something, the value does not. */
#ifndef QKV_BASE_CLOCK_H
#define QKV_BASE_CLOCK_H
double clock_ms(void);
#endif
