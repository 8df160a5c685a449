// Cases that every rank of a job runs (cases.cpp): what goes wrong is printed, and ends the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bindings/mpi/mpi.h"

namespace tutti::test {

struct Case {
  const char* name;
  void (*run)();
};
std::vector<Case>& cases();

struct Registered {
  Registered(const char* name, void (*run)()) { cases().push_back({name, run}); }
};
// A case's name is a claim.
#define MPI_CASE(NAME)                                    \
  static void NAME();                                     \
  static const Registered registered_##NAME(#NAME, NAME); \
  static void NAME()

// Ranks and size of MPI_COMM_WORLD.
int rank();
int size();

#define EXPECT(condition)                                                                  \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::printf("%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank(), #condition); \
      std::fflush(stdout);                                                                 \
      MPI_Abort(MPI_COMM_WORLD, 3);                                                        \
    }                                                                                      \
  } while (false)

/// Distinct by rank, position and use.
inline int datum(int of, std::size_t position, int use = 0) {
  return static_cast<int>(static_cast<unsigned>(of) * 1000003u +
                          static_cast<unsigned>(position) * 7u +
                          static_cast<unsigned>(use) * 50021u);
}
inline std::vector<int> data(int of, std::size_t count, int use = 0) {
  std::vector<int> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = datum(of, i, use);
  return all;
}

// From 0 bytes to what goes in parts, around the limits between protocols (in ints).
inline const std::vector<std::size_t> kCounts{0, 1, 3, 7, 9, 100, 4095, 4096, 4097, 50000, 300001};

inline int count_of(const MPI_Status& status, MPI_Datatype type = MPI_INT) {
  int count = -1;
  MPI_Get_count(&status, type, &count);
  return count;
}
inline int class_of(int code) {
  int error_class = -1;
  MPI_Error_class(code, &error_class);
  return error_class;
}
inline std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace tutti::test
