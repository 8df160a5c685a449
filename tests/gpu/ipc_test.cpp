// GPU memory of one process in another: the child exports, the parent maps, reads and writes. The
// child is forked before CUDA is touched, which does not survive a fork.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "transport/gpu/cuda_driver.h"
#include "transport/gpu/cuda_ipc.h"
#include "transport/gpu/cuda_module.h"

namespace tutti {
namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr std::size_t kOffset = 4096 + 12;  // any pointer may be exported
int parent_socket = -1;

std::vector<std::byte> pattern(int salt) {
  std::vector<std::byte> data(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    data[i] = static_cast<std::byte>((i * 7 + i / 251 + static_cast<std::size_t>(salt)) & 0xFF);
  }
  return data;
}

void send_with_fd(int socket, const CudaMemoryHandle& handle, int fd) {
  CudaMemoryHandle copy = handle;
  iovec part{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  if (sendmsg(socket, &message, 0) < 0) std::perror("sendmsg");
}

bool receive_with_fd(int socket, CudaMemoryHandle& handle, FileDescriptor& fd) {
  iovec part{&handle, sizeof handle};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_WAITALL) != static_cast<ssize_t>(sizeof handle)) return false;
  if (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(c), sizeof number);
    fd = FileDescriptor(number);
  }
  return true;
}

/// Memory whose handle is a file descriptor, as PyTorch's expandable segments have it.
std::byte* virtual_memory() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory{};
  constexpr std::size_t kSize = std::size_t{2} << 20;
  void* create = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuMemCreate", &create, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      reinterpret_cast<decltype(&cuMemCreate)>(create)(&memory, kSize, &properties, 0) !=
          CUDA_SUCCESS) {
    return nullptr;
  }
  const CudaDriver& driver = CudaDriver::get();
  CUdeviceptr at = 0;
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (driver.reserve(&at, kSize, 0, 0, 0) != CUDA_SUCCESS ||
      driver.map(at, kSize, 0, memory, 0) != CUDA_SUCCESS ||
      driver.set_access(at, kSize, &access, 1) != CUDA_SUCCESS) {
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(at);
}

/// For each letter that comes: exports memory of that kind; for the next one, answers whether the
/// parent's pattern is in it.
int child(int socket) {
  char kind = 0;
  while (read(socket, &kind, 1) == 1) {
    void* memory = nullptr;
    cudaSetDevice(0);
    cudaFree(nullptr);
    if (kind == 'v') {
      memory = virtual_memory();
    } else {
      cudaMalloc(&memory, 2 * kBytes);
    }
    auto* const at = static_cast<std::byte*>(memory) + kOffset;
    cudaMemcpy(at, pattern(1).data(), kBytes, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    try {
      const CudaExport e = export_cuda_memory(at, kBytes);
      send_with_fd(socket, e.handle, e.fd.fd());
    } catch (const Error& e) {
      std::printf("child: %s\n", e.what());
      send_with_fd(socket, {}, -1);
    }
    if (read(socket, &kind, 1) != 1) break;
    std::vector<std::byte> back(kBytes);
    cudaMemcpy(back.data(), at, kBytes, cudaMemcpyDeviceToHost);
    const char same = back == pattern(2) ? 'y' : 'n';
    if (write(socket, &same, 1) != 1) break;
  }
  return 0;
}

class GpuIpc : public ::testing::TestWithParam<char> {};

TEST_P(GpuIpc, MemoryOfAnotherProcess) {
  const char kind = GetParam();
  ASSERT_EQ(write(parent_socket, &kind, 1), 1);
  CudaMemoryHandle handle;
  FileDescriptor fd;
  ASSERT_TRUE(receive_with_fd(parent_socket, handle, fd));
  EXPECT_EQ(handle.offset % 4096, kOffset % 4096);
  {
    const CudaImport import(handle, fd, 0);
    EXPECT_EQ(import.kind(), kind == 'v' ? CudaMemoryHandle::kFd : CudaMemoryHandle::kLegacy);
    EXPECT_GE(import.bytes(), kBytes);
    std::vector<std::byte> data(kBytes);
    ASSERT_EQ(cudaMemcpy(data.data(), import.data(), kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(data, pattern(1));
    ASSERT_EQ(cudaMemcpy(import.data(), pattern(2).data(), kBytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  char answer = 0;
  ASSERT_EQ(write(parent_socket, "?", 1), 1);
  ASSERT_EQ(read(parent_socket, &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuIpc, ::testing::Values('m', 'v'));

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  const pid_t pid = fork();
  if (pid == 0) {
    close(sockets[0]);
    _exit(tutti::child(sockets[1]));
  }
  close(sockets[1]);
  tutti::parent_socket = sockets[0];
  std::string why;
  int status = 77;
  if (tutti::gpu_count(&why) == 0) {
    std::printf("no CUDA device: %s\n", why.c_str());
  } else {
    status = RUN_ALL_TESTS();
  }
  close(sockets[0]);
  waitpid(pid, nullptr, 0);
  return status;
}
