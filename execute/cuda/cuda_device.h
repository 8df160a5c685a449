// A GPU of this process, through the CUDA runtime. A part of libtutti_cuda.so. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "execute/cuda/device.h"

namespace tutti::device {

class CudaDevice : public Device {
 public:
  /// GPU `ordinal` of CUDA's numbering. Loads all kernels, because loading one later would wait for
  /// those that run. Throws Error(system) where there is none, or no driver.
  explicit CudaDevice(int ordinal);
  ~CudaDevice() override;

  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory) noexcept override;
  Control* allocate_control() override;
  void deallocate_control(Control* control) noexcept override;
  void pin(std::byte* memory, std::size_t bytes) override;
  void unpin(std::byte* memory) noexcept override;
  StreamPlace place(Stream stream) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void overwrite(std::byte* to, std::span<const std::byte> from, Stream stream) override;
  void launch(const Launch& launch, DataType type, std::uint32_t blocks, Stream stream) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  void order(Stream first, Stream then) override;
  Mark note(Stream stream, const void* owner) override;
  void drain(const void* owner) noexcept override;
  std::uint32_t most_blocks() const override { return most_blocks_; }
  Identity identity() const override { return identity_; }
  Reach reach(const Identity& other) override;
  bool can_address(const std::byte* memory) override;
  CudaAllocation allocation(const std::byte* memory) override;
  CudaExport share(const std::byte* memory, std::size_t bytes) override;
  Mapping map(const CudaMemoryHandle& handle, const FileDescriptor& fd) override;
  FileDescriptor dma_buf(const std::byte* memory, std::size_t bytes) override;
  RdmaOrder rdma_order() override { return tutti::rdma_order(ordinal_); }
  void flush_rdma_writes() override;
  void as_current(const std::function<void()>& body) override;
  std::shared_ptr<void> make_stream() override;
  Event record(Stream stream) override;
  void order(const Event& event, Stream then) override;
  bool is_over(const Event& event) override;
  void synchronize(const Event& event) override;
  void zero(std::byte* memory, std::size_t bytes, Stream stream) override;
  void read(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override;
  std::size_t free_bytes() override;

  int ordinal() const { return ordinal_; }

 private:
  /// On the host, while other threads may launch.
  static void wait_for(Stream stream);
  /// A stream that is ordered after no other, for work that must not wait for a kernel; `work` is
  /// done on return. One for all, as the GPU has few queues (transport/gpu/cuda_module.cpp).
  void aside(const std::function<void(void* stream)>& work);

  /// What was given back. CUDA waits for all work of the GPU before it frees memory, and a kernel
  /// of ours may wait for the very rank that frees. So the memory stays while a kernel runs.
  struct Unused {
    void* memory;
    std::size_t bytes;  // of the GPU's memory, which another one may have; 0: the host's, pinned
  };
  void give_back(const Unused& unused) noexcept;
  /// Memory of that size, or null.
  void* reuse(std::size_t bytes);
  /// Whether nothing is under way. The caller holds the mutex.
  bool is_idle() const;
  void forget_unnoted(Stream stream);
  static void free(const Unused& unused) noexcept;

  int ordinal_;
  std::uint32_t most_blocks_ = 0;
  Identity identity_{};
  std::mutex mutex_;
  void* aside_ = nullptr;  // cudaStream_t
  class FreeEvents;
  std::shared_ptr<FreeEvents> free_events_;
  // By owner and the stream's number, which no later stream has.
  std::map<std::pair<const void*, std::uint64_t>, Event> noted_;
  std::vector<Stream> unnoted_;  // of launches since
  std::map<void*, std::size_t> sizes_;
  std::vector<Unused> unused_;
};

/// How many this process can use; 0: `why`, in words. Starts CUDA.
int cuda_devices(std::string& why);

}  // namespace tutti::device
