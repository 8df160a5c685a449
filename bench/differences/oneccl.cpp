// oneCCL has C++ templates alone for CPUs; libraries.py calls these functions through ctypes
// instead. run.py compiles the file beside oneCCL's wheel. A function returns null, or the text of
// oneCCL's error, which is good until the next one.

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "oneapi/ccl.hpp"

namespace {

std::unique_ptr<ccl::communicator> comm;
std::shared_ptr<ccl::kvs> store;
std::map<int, ccl::event> started;
std::string error;

template <typename Call>
const char* text(Call call) {
  try {
    call();
    return nullptr;
  } catch (const std::exception& caught) {
    error = caught.what();
    return error.c_str();
  }
}

ccl::datatype type_of(int type) { return static_cast<ccl::datatype>(type); }
ccl::reduction op_of(int op) { return static_cast<ccl::reduction>(op); }

}  // namespace

extern "C" {

/** Rank 0: fills the 256 bytes of an address, which the other ranks give to join(). */
const char* oneccl_address(char* bytes) {
  return text([&] {
    ccl::init();
    store = ccl::create_main_kvs();
    std::memcpy(bytes, store->get_address().data(), ccl::kvs::address_max_size);
  });
}

const char* oneccl_join(int size, int rank, const char* bytes) {
  return text([&] {
    ccl::init();
    if (rank != 0) {
      ccl::kvs::address_type address;
      std::memcpy(address.data(), bytes, ccl::kvs::address_max_size);
      store = ccl::create_kvs(address);
    }
    comm = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, store));
  });
}

const char* oneccl_all_reduce(const void* in, void* out, size_t count, int type, int op) {
  return text([&] { ccl::allreduce(in, out, count, type_of(type), op_of(op), *comm).wait(); });
}

const char* oneccl_start_all_reduce(int id, const void* in, void* out, size_t count, int type,
                                    int op) {
  return text(
      [&] { started[id] = ccl::allreduce(in, out, count, type_of(type), op_of(op), *comm); });
}

const char* oneccl_wait(int id) {
  return text([&] {
    started.at(id).wait();
    started.erase(id);
  });
}

const char* oneccl_reduce(const void* in, void* out, size_t count, int type, int root) {
  return text(
      [&] { ccl::reduce(in, out, count, type_of(type), ccl::reduction::sum, root, *comm).wait(); });
}

const char* oneccl_reduce_scatter(const void* in, void* out, size_t count, int type) {
  return text([&] {
    ccl::reduce_scatter(in, out, count, type_of(type), ccl::reduction::sum, *comm).wait();
  });
}

const char* oneccl_all_gather(const void* in, void* out, size_t count, int type) {
  return text([&] { ccl::allgather(in, out, count, type_of(type), *comm).wait(); });
}

const char* oneccl_broadcast(void* buffer, size_t count, int type, int root) {
  return text([&] { ccl::broadcast(buffer, count, type_of(type), root, *comm).wait(); });
}

const char* oneccl_send(void* buffer, size_t count, int type, int peer) {
  return text([&] { ccl::send(buffer, count, type_of(type), peer, *comm).wait(); });
}

const char* oneccl_receive(void* buffer, size_t count, int type, int peer) {
  return text([&] { ccl::recv(buffer, count, type_of(type), peer, *comm).wait(); });
}

const char* oneccl_barrier() {
  return text([] { ccl::barrier(*comm).wait(); });
}

}  // extern "C"
