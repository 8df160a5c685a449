// Memory for the programs' objects.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace tutti::model {

/// Zeros, as shared memory is at first, for objects of several threads.
template <class T>
std::shared_ptr<T> zeros() {
  void* const memory = ::operator new(sizeof(T), std::align_val_t(alignof(T)));
  std::memset(memory, 0, sizeof(T));
  return {static_cast<T*>(memory),
          [](T* p) { ::operator delete(p, std::align_val_t(alignof(T))); }};
}
template <std::size_t kBytes>
struct alignas(4096) Area {
  std::byte bytes[kBytes];
};

}  // namespace tutti::model
