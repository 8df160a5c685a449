// Objects that a program has handles of: data types, operators, communicators, requests...
//
// A handle of a program's own object leads to a slot, which holds the object while the handle is
// valid: the handle is the slot's address, or its number (interface.h). Slots are never given back,
// so a handle that was freed is noticed and not followed: find() returns null. Other parts of the
// library share the object itself (share()), and so outlive MPI_..._free.
//
// Handles also have numbers (MPI_..._toint, _c2f). Where handles are integers, they are these; else
// those of predefined objects are small (their values, where these are), and others begin at 4096.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

/// The objects of one kind. All functions may be called by any thread; a handle must not be freed
/// while another thread uses it.
template <class T, class Handle>
class Handles {
 public:
  /// Gives a predefined handle its object. Called before any handle is looked up.
  void predefine(Handle handle, std::shared_ptr<T> object) {
    predefined_.at(Predefined<Handle>::place(bits_of(handle))) = {handle, std::move(object)};
  }
  /// The predefined handle of an object; `none` if it has no such handle.
  Handle predefined_handle(const T& object, Handle none) const {
    for (const Named& each : predefined_) {
      if (each.object.get() == &object) return each.handle;
    }
    return none;
  }

  /// A new handle of the object.
  Handle add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    Slot* slot = free_;
    if (slot != nullptr) {
      free_ = slot->next;
    } else {
      slot = new_slot();
    }
    slot->object = std::move(object);
    return handle_of_slot(*slot);
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
  static bool is_predefined(Handle handle) { return mpi::is_predefined(bits_of(handle)); }

  /// Makes a handle invalid and returns its object. The handle must be valid, and not predefined.
  std::shared_ptr<T> remove(Handle handle) {
    Slot* const slot = slot_of(handle);
    std::shared_ptr<T> object = std::move(slot->object);
    slot->object.reset();
    const std::lock_guard lock(mutex_);
    slot->next = free_;
    free_ = slot;
    return object;
  }

  int number(Handle handle) const {
    if (!std::is_pointer_v<Handle> || is_predefined(handle))
      return static_cast<int>(predefined_number(handle));
    return static_cast<int>(kFirstNumber + slot_of(handle)->number);
  }
  /// The handle with a number; that with the value 0 if there is none.
  Handle numbered(int number) const {
    const auto wanted = static_cast<std::uint32_t>(number);
    if (!std::is_pointer_v<Handle> || wanted < kFirstNumber)
      return predefined_numbered<Handle>(wanted);
    Slot* const slot = numbered_slot(wanted - kFirstNumber);
    return slot == nullptr ? Handle{} : handle_of_slot(*slot);
  }

  /// How many handles the program has not freed.
  std::size_t alive() const {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (std::uint32_t i = 0; i < slots_; ++i) n += numbered_slot(i)->object != nullptr ? 1 : 0;
    return n;
  }

 private:
  static constexpr std::uint32_t kFirstNumber = 4096;
  static constexpr std::uint32_t kFirstChunk = 64;  // slots; each chunk has twice the one before
  static constexpr int kChunks = 21;

  struct Slot {
    const void* owner = nullptr;
    std::shared_ptr<T> object;
    Slot* next = nullptr;
    std::uint32_t number = 0;
  };
  struct Named {
    Handle handle{};
    std::shared_ptr<T> object;
  };

  static int chunk_of(std::uint32_t number) { return std::bit_width(number / kFirstChunk + 1) - 1; }
  static std::uint32_t before_chunk(int chunk) { return ((1U << chunk) - 1) * kFirstChunk; }

  /// Null for a number that there is not. Slots never move, so this needs no lock.
  Slot* numbered_slot(std::uint32_t number) const noexcept {
    const int chunk = chunk_of(number);
    if (chunk >= kChunks) return nullptr;
    Slot* const first = chunks_[static_cast<std::size_t>(chunk)].load(std::memory_order_acquire);
    return first == nullptr ? nullptr : first + (number - before_chunk(chunk));
  }

  /// With the lock.
  Slot* new_slot() {
    const int chunk = chunk_of(slots_);
    if (chunk >= kChunks) throw std::bad_alloc();
    auto& first = chunks_[static_cast<std::size_t>(chunk)];
    if (first.load(std::memory_order_relaxed) == nullptr)
      first.store(new Slot[kFirstChunk << chunk], std::memory_order_release);
    Slot* const slot = numbered_slot(slots_);
    slot->owner = this;
    slot->number = slots_++;
    return slot;
  }

  Handle handle_of_slot(Slot& slot) const {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<Handle>(&slot);
    } else {
      return handle_of<Handle>(Predefined<Handle>::own + slot.number);
    }
  }
  /// Null for a handle of another kind. One that is an address has to be some kind's.
  Slot* slot_of(Handle handle) const noexcept {
    if constexpr (std::is_pointer_v<Handle>) {
      auto* const slot = reinterpret_cast<Slot*>(handle);
      return slot->owner == this ? slot : nullptr;
    } else {
      const auto number = static_cast<std::uint32_t>(bits_of(handle) - Predefined<Handle>::own);
      return number < 1U << kNumberBits ? numbered_slot(number) : nullptr;
    }
  }

  const std::shared_ptr<T>* place(Handle handle) const noexcept {
    const std::uintptr_t bits = bits_of(handle);
    if (mpi::is_predefined(bits)) {
      const std::size_t at = Predefined<Handle>::place(bits);
      if (at >= predefined_.size() || predefined_[at].handle != handle) return nullptr;
      return &predefined_[at].object;
    }
    const Slot* const slot = slot_of(handle);
    return slot == nullptr ? nullptr : &slot->object;
  }

  mutable std::mutex mutex_;
  std::array<Named, Predefined<Handle>::places> predefined_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::uint32_t slots_ = 0;  // that were ever made
  Slot* free_ = nullptr;
};

}  // namespace tutti::mpi
