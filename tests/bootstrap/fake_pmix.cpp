// A libpmix.so.2 for tests, which behaves as FAKE_PMIX says: "hang" in a fence, "lost" (it reaches
// no launcher), "number" (a value of another type), or else it has FAKE_PMIX as rank 0's value. The
// job has two ranks, one of them on this host. As the real one, it needs the loader at its
// beginning.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bootstrap/pmix_abi.h"

namespace {

std::string mode() {
  const char* const value = std::getenv("FAKE_PMIX");
  return value == nullptr ? "" : value;
}

constexpr int kUnreachable = -25;

}  // namespace

extern "C" {

int PMIx_Init(tutti::pmix::Process* self, tutti::pmix::Info*, std::size_t) {
  [[maybe_unused]] const void* const plugins = ::dlopen(nullptr, RTLD_NOW);
  std::strcpy(self->space, "fake");
  self->rank = 1;
  return mode() == "lost" ? kUnreachable : tutti::pmix::kSuccess;
}
int PMIx_Finalize(const tutti::pmix::Info*, std::size_t) { return tutti::pmix::kSuccess; }
int PMIx_Put(std::uint8_t, const char*, tutti::pmix::Value*) { return tutti::pmix::kSuccess; }
int PMIx_Commit() { return tutti::pmix::kSuccess; }
int PMIx_Fence(const tutti::pmix::Process* processes, std::size_t count,
               const tutti::pmix::Info* info, std::size_t infos) {
  while (mode() == "hang") ::pause();
  const bool right = processes == nullptr && count == 0 && infos == 1 &&
                     std::string(info->key) == tutti::pmix::kCollectData && info->value.flag;
  return right ? tutti::pmix::kSuccess : -1;
}
int PMIx_Get(const tutti::pmix::Process* process, const char* key, const tutti::pmix::Info*,
             std::size_t, tutti::pmix::Value** value) {
  if (std::string(process->space) == "fake" && process->rank == tutti::pmix::kAnyRank) {
    *value = static_cast<tutti::pmix::Value*>(std::calloc(1, sizeof(tutti::pmix::Value)));
    (*value)->type = mode() == "no number" ? tutti::pmix::kString : tutti::pmix::kUint32;
    (*value)->number = key == std::string(tutti::pmix::kJobSize) ? 2 : 1;
    return tutti::pmix::kSuccess;
  }
  if (std::string(process->space) != "fake" || process->rank != 0) return -1;
  *value = static_cast<tutti::pmix::Value*>(std::calloc(1, sizeof(tutti::pmix::Value)));
  (*value)->type = mode() == "number" ? tutti::pmix::kBoolean : tutti::pmix::kString;
  if (mode() != "number") (*value)->string = strdup(mode().c_str());
  return tutti::pmix::kSuccess;
}
const char* PMIx_Error_string(int) { return "FAKE-STATUS"; }
const char* PMIx_Get_version() { return "fake 1"; }
}
