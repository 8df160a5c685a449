// Pages of another process's memory: how many faults their first use takes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/host_memory.h"
#include "transport/host/pages.h"
#include "transport/host/shared_memory.h"

namespace tutti {
namespace {

constexpr std::size_t kBytes = std::size_t{4} << 20;

/// As a peer has it.
std::shared_ptr<SharedMemory> mapped_again(const SharedMemory& memory) {
  return SharedMemory::map(FileDescriptor(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0)), memory.size());
}

template <class Body>
long faults(Body&& body) {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  body();
  getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(Mapping, WhatIsMetBeforeItIsWrittenFaultsOnceForManyPages) {
  const auto memory = SharedMemory::create("mapping_test", kBytes);
  std::memset(memory->data(), 1, kBytes);
  const auto written = mapped_again(*memory), met = mapped_again(*memory);
  const long without = faults([&] { std::memset(written->data(), 2, kBytes); });
  if (without < static_cast<long>(kBytes / page_bytes())) GTEST_SKIP() << "pages are large here";
  const long with = faults([&] {
    // As calls do: a part at a time, wherever it begins.
    for (std::size_t at = 0; at < kBytes; at += 24 << 10) {
      const std::size_t bytes = std::min<std::size_t>(24 << 10, kBytes - at);
      met->meet(met->data() + at, bytes);
      std::memset(met->data() + at, 3, bytes);
    }
  });
  // One for each 64 KiB; a page that the kernel is moving about is left out, and faults by itself.
  EXPECT_LT(with, without / 8);
  EXPECT_EQ(memory->data()[kBytes - 1], std::byte{3});
}

TEST(Mapping, MeetingTakesNoMorePagesThanAreWritten) {
  const auto memory = SharedMemory::create("mapping_test", kBytes);
  const auto peer = mapped_again(*memory);
  std::byte* const at = peer->data() + kBytes / 2 + 5 * page_bytes();
  peer->meet(at, page_bytes());
  std::memset(at, 1, page_bytes());
  EXPECT_EQ(taken_bytes({memory->data(), kBytes}), page_bytes());
}

}  // namespace
}  // namespace tutti
