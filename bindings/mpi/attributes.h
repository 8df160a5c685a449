// Attributes: values that a program hangs on communicators, types and windows, each under a key
// that has functions for copying (when the object is duplicated) and for deleting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

/// What a key was made with. Functions take the object's handle (bits_of); a result but MPI_SUCCESS
/// is the program's error.
struct Key {
  enum class Of { comm, type, win };
  using Copy = std::function<int(std::uintptr_t object, int key, void* extra, void* value,
                                 void* copy, int* copied)>;
  using Delete = std::function<int(std::uintptr_t object, int key, void* value, void* extra)>;

  Of of = Of::comm;
  Copy copy;         // empty: is not copied
  Delete on_delete;  // empty: nothing happens
  void* extra = nullptr;
  int number = MPI_KEYVAL_INVALID;
};

/// The attributes of one object, whose handle (bits_of) is what `object` means. Any thread may
/// call; the program's functions run without a lock.
class Attributes {
 public:
  /// Null if there is none; the value may be null, too.
  bool get(int key, void** value) const;
  /// Replaces a value after the key's delete function has agreed. Throws Failure with what that
  /// returns.
  void set(std::uintptr_t object, const std::shared_ptr<const Key>& key, void* value);
  /// Throws Failure(MPI_ERR_KEYVAL) if there is none, else what the delete function returns.
  void remove(std::uintptr_t object, int key);
  /// Of an object that is duplicated: calls the copy functions, in the order in which the values
  /// were set. Throws Failure with what one returns; the copies that were made before are deleted
  /// then.
  void copy_to(Attributes& other, std::uintptr_t object, std::uintptr_t copy) const;
  /// Of an object that is freed: calls the delete functions, from the last that was set to the
  /// first. Throws Failure with what one returns, and keeps that value and those before it.
  void clear(std::uintptr_t object);

 private:
  struct Value {
    std::shared_ptr<const Key> key;
    void* value;
  };
  std::vector<Value> values() const;

  mutable std::mutex mutex_;
  std::vector<Value> values_;  // in the order in which they were set
};

/// A new key (4096 and above). The key of a number: null if there is none, or it was freed and no
/// object has a value under it. Freeing one twice does no harm.
int new_key(Key key);
std::shared_ptr<const Key> find_key(int number);
void free_key(int number);

/// Where an object's attributes are. Throw Failure for invalid handles. communicator.cpp and
/// window.cpp define those of their objects.
Attributes& attributes_of(MPI_Datatype type);
Attributes& attributes_of(MPI_Comm comm);
Attributes& attributes_of(MPI_Win win);
/// The values of predefined keys (MPI_TAG_UB, ...): false if the object has no such key.
/// communicator.cpp and window.cpp define these. The value is a pointer to an int, as the standard
/// says, or the base of a window.
inline bool predefined_attribute(MPI_Datatype, int, void**) { return false; }
bool predefined_attribute(MPI_Comm comm, int key, void** value);
bool predefined_attribute(MPI_Win win, int key, void** value);

}  // namespace tutti::mpi
