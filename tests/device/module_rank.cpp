// Says what calls do on memory of the host, and then on memory of a GPU, with the driver of
// module_driver.cpp or with none. Run by module.cmake.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "transport/gpu/cuda_module.h"
#include "transport/gpu/gpu_driver.h"

namespace {

bool is_mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

void sum(tutti::Communicator& comm, float* data) {
  tutti::Call call;
  call.collective = tutti::Collective::all_reduce;
  call.in = call.out = data;
  call.count = 4;
  call.type = tutti::DataType::float32;
  comm.run(call, nullptr);
}

}  // namespace

int main() {
  std::vector<tutti::Communicator> ranks = tutti::Communicator::create_local(1);
  float on_host[] = {1, 2, 3, 4};
  ranks[0].all_reduce(on_host, on_host, 4, tutti::DataType::float32);
  std::printf("driver: %s\n", tutti::gpu_driver() != nullptr ? "there" : "none");
  std::printf("module after a call on the host: %s\n",
              is_mapped("libtutti_cuda") ? "open" : "closed");
  void* const memory =
      tutti::gpu_driver() != nullptr ? dlsym(tutti::gpu_driver(), "memory_of_gpu_0") : nullptr;
  std::printf("the memory is of GPU %d, the host's of %d\n", tutti::gpu_of(memory),
              tutti::gpu_of(on_host));
  std::string why;
  const int gpus = tutti::gpu_count(&why);
  std::printf("GPUs: %d, %s\n", gpus, why.c_str());
  if (memory == nullptr) return 0;
  try {
    sum(ranks[0], static_cast<float*>(memory));
    std::printf("call: done\n");
  } catch (const tutti::Error& error) {
    std::printf("call: %s: %s\n", std::string(name(error.code())).c_str(), error.what());
  }
  std::printf("module after a call on the GPU: %s\n",
              is_mapped("libtutti_cuda") ? "open" : "closed");
}
