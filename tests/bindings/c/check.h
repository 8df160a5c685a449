// What the tests of the C interface share: checks that say where they fail, and end the process.
#ifndef TUTTI_TESTS_C_CHECK_H
#define TUTTI_TESTS_C_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti_c.h>

#define CHECK(condition)                                                                          \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      fprintf(stderr, "%s:%d: %s is wrong; newest failure: %s\n", __FILE__, __LINE__, #condition, \
              tutti_error_message());                                                             \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

#define CHECK_OK(call) CHECK_RESULT(call, TUTTI_OK)

#define CHECK_RESULT(call, expected)                                                   \
  do {                                                                                 \
    const tutti_result result_of_call = (call);                                        \
    if (result_of_call != (expected)) {                                                \
      fprintf(stderr, "%s:%d: %s is %s, expected %s: %s\n", __FILE__, __LINE__, #call, \
              tutti_result_name(result_of_call), tutti_result_name(expected),          \
              tutti_error_message());                                                  \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

/// Fails with this code, and a message that has `part`.
#define CHECK_FAILS(call, code, part)                                                    \
  do {                                                                                   \
    CHECK_RESULT(call, code);                                                            \
    if (strstr(tutti_error_message(), part) == NULL) {                                   \
      fprintf(stderr, "%s:%d: the message lacks \"%s\": %s\n", __FILE__, __LINE__, part, \
              tutti_error_message());                                                    \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

#endif
