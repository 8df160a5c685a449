// Objects that a program has handles of: data types, operators, communicators, requests...
//
// A handle of a program's own object is the address of a slot, which holds the object while the
// handle is valid. Slots are never given back, so a handle that was freed is noticed and not
// followed: find() returns null. Other parts of the library share the object itself (share()), and
// so outlive MPI_..._free. Predefined handles are small numbers.
//
// Handles also have numbers (MPI_..._toint, _c2f): those of predefined objects are their values,
// others begin at 4096.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace tutti::mpi {

inline constexpr std::uintptr_t kFirstOwnHandle = 4096;

/// The objects of one kind. Handle is a pointer type of abi.h; predefined handles are `First` to
/// `First + Predefined - 1`. All functions may be called by any thread; a handle must not be freed
/// while another thread uses it.
template <class T, class Handle, std::uintptr_t First, std::size_t Predefined>
class Handles {
 public:
  /// Gives a predefined handle its object. Called before any handle is looked up.
  void predefine(Handle handle, std::shared_ptr<T> object) {
    predefined_.at(value(handle) - First) = std::move(object);
  }

  /// A new handle of the object.
  Handle add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    Slot* slot = free_;
    if (slot != nullptr) {
      free_ = slot->next;
    } else {
      slot = &slots_.emplace_back();
      slot->owner = this;
      slot->number = static_cast<int>(kFirstOwnHandle + slots_.size() - 1);
    }
    slot->object = std::move(object);
    return reinterpret_cast<Handle>(slot);
  }

  /// The object of a handle; null for the null handle, one that was freed, and one of another kind.
  T* find(Handle handle) const noexcept {
    const auto* object = place(handle);
    return object == nullptr ? nullptr : object->get();
  }
  std::shared_ptr<T> share(Handle handle) const {
    const auto* object = place(handle);
    return object == nullptr ? nullptr : *object;
  }
  static bool is_predefined(Handle handle) { return value(handle) < kFirstOwnHandle; }

  /// Makes a handle invalid and returns its object. The handle must be valid, and not predefined.
  std::shared_ptr<T> remove(Handle handle) {
    auto* slot = reinterpret_cast<Slot*>(handle);
    std::shared_ptr<T> object = std::move(slot->object);
    slot->object.reset();
    std::lock_guard lock(mutex_);
    slot->next = free_;
    free_ = slot;
    return object;
  }

  int number(Handle handle) const {
    return is_predefined(handle) ? static_cast<int>(value(handle))
                                 : reinterpret_cast<const Slot*>(handle)->number;
  }
  /// The handle with a number; that with the value 0 if there is none.
  Handle numbered(int number) {
    const auto wanted = static_cast<std::uintptr_t>(static_cast<unsigned>(number));
    if (wanted < kFirstOwnHandle) {
      return reinterpret_cast<Handle>(wanted);
    }
    std::lock_guard lock(mutex_);
    return wanted - kFirstOwnHandle < slots_.size()
               ? reinterpret_cast<Handle>(&slots_[wanted - kFirstOwnHandle])
               : Handle{};
  }

  /// How many handles the program has not freed.
  std::size_t alive() const {
    std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const Slot& slot : slots_) {
      n += slot.object != nullptr ? 1 : 0;
    }
    return n;
  }

 private:
  struct Slot {
    const void* owner = nullptr;
    std::shared_ptr<T> object;
    Slot* next = nullptr;
    int number = 0;
  };

  static std::uintptr_t value(Handle handle) { return reinterpret_cast<std::uintptr_t>(handle); }

  const std::shared_ptr<T>* place(Handle handle) const noexcept {
    if (const std::uintptr_t v = value(handle); v < kFirstOwnHandle) {
      return v - First < Predefined ? &predefined_[v - First] : nullptr;
    }
    const auto* slot = reinterpret_cast<const Slot*>(handle);
    return slot->owner == this ? &slot->object : nullptr;
  }

  mutable std::mutex mutex_;
  std::array<std::shared_ptr<T>, Predefined> predefined_;
  std::deque<Slot> slots_;  // which never move
  Slot* free_ = nullptr;
};

}  // namespace tutti::mpi
