// The part of libpmix.so.2's binary interface that Tutti uses, as the PMIx standard has it since
// version 2. The tests check the values against the library's header where they find one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::pmix {

constexpr int kSuccess = 0;
constexpr std::uint16_t kBoolean = 1, kString = 3, kUint32 = 14;  // types of values
constexpr std::uint8_t kToAll = 3;                                // the scope of a value
constexpr std::uint32_t kAnyRank = UINT32_MAX - 1;                // whose values are the job's
constexpr const char* kCollectData = "pmix.collect";
constexpr const char* kJobSize = "pmix.job.size";
constexpr const char* kLocalSize = "pmix.local.size";  // the job's ranks on this host

struct Process {
  char space[256];
  std::uint32_t rank;
};

/// The union has room for more, in later versions of the library than in earlier ones. Here it is
/// as large as in any; arrays of values, where the size would matter, have one element.
struct Value {
  std::uint16_t type;
  union {
    bool flag;
    char* string;
    std::uint32_t number;
    std::byte room[24];
  };
};

struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

/// The functions, by the names that they have after "PMIx_".
struct Functions {
  int (*init)(Process* self, Info* info, std::size_t infos) = nullptr;
  int (*finalize)(const Info* info, std::size_t infos) = nullptr;
  int (*put)(std::uint8_t scope, const char* key, Value* value) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process* processes, std::size_t count, const Info* info,
               std::size_t infos) = nullptr;
  int (*get)(const Process* process, const char* key, const Info* info, std::size_t infos,
             Value** value) = nullptr;
  const char* (*error_string)(int status) = nullptr;
  const char* (*get_version)() = nullptr;
};

}  // namespace tutti::pmix
