// Mapping a connection's data ahead of its use.
#include "transport/connection.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tutti::detail {

void populate(const ConnectionView& view) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(view.data) + view.shape.data_bytes();
#ifdef MADV_POPULATE_WRITE
  // Linux 5.14; otherwise they are populated as they are used.
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#else
  static_cast<void>(begin + end);
#endif
}

}  // namespace tutti::detail
