#include "bindings/mpi/attributes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/type.h"

namespace tutti::mpi {
namespace {

constexpr int kFirstKey = 4096;

struct Keys {
  std::mutex mutex;
  std::map<int, std::shared_ptr<const Key>> alive;
  std::map<int, std::weak_ptr<const Key>> freed;  // which values may still have
  int next = kFirstKey;
};

Keys& keys() {
  static auto* all = new Keys;
  return *all;
}

/// What a function of the program returned. Codes of the program's go on as they are.
void check_result(int result) {
  if (result != MPI_SUCCESS) throw Failure(result, "");
}

int delete_value(const Key& key, std::uintptr_t object, void* value) {
  return key.on_delete ? key.on_delete(object, key.number, value, key.extra) : MPI_SUCCESS;
}

}  // namespace

int new_key(Key key) {
  Keys& all = keys();
  const std::lock_guard lock(all.mutex);
  key.number = all.next++;
  const int number = key.number;
  all.alive[number] = std::make_shared<const Key>(std::move(key));
  return number;
}

std::shared_ptr<const Key> find_key(int number) {
  Keys& all = keys();
  const std::lock_guard lock(all.mutex);
  const auto place = all.alive.find(number);
  if (place != all.alive.end()) return place->second;
  const auto before = all.freed.find(number);
  return before == all.freed.end() ? nullptr : before->second.lock();
}

void free_key(int number) {
  Keys& all = keys();
  const std::lock_guard lock(all.mutex);
  const auto place = all.alive.find(number);
  if (place == all.alive.end()) return;
  std::erase_if(all.freed, [](const auto& key) { return key.second.expired(); });
  all.freed[number] = place->second;
  all.alive.erase(place);
}

std::vector<Attributes::Value> Attributes::values() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

bool Attributes::get(int key, void** value) const {
  const std::lock_guard lock(mutex_);
  for (const Value& each : values_) {
    if (each.key->number == key) {
      *value = each.value;
      return true;
    }
  }
  return false;
}

void Attributes::set(std::uintptr_t object, const std::shared_ptr<const Key>& key, void* value) {
  if (void* before = nullptr; get(key->number, &before))
    check_result(delete_value(*key, object, before));
  const std::lock_guard lock(mutex_);
  for (Value& each : values_) {
    if (each.key->number == key->number) {
      each.value = value;
      return;
    }
  }
  values_.push_back({key, value});
}

void Attributes::remove(std::uintptr_t object, int key) {
  for (const Value& each : values()) {
    if (each.key->number != key) continue;
    check_result(delete_value(*each.key, object, each.value));
    const std::lock_guard lock(mutex_);
    std::erase_if(values_, [&](const Value& value) { return value.key->number == key; });
    return;
  }
  fail(MPI_ERR_KEYVAL, "the object has no attribute under the key {}", key);
}

void Attributes::copy_to(Attributes& other, std::uintptr_t object, std::uintptr_t copy) const {
  for (const Value& each : values()) {
    if (!each.key->copy) continue;
    void* value = nullptr;
    int copied = 0;
    const int result =
        each.key->copy(object, each.key->number, each.key->extra, each.value, &value, &copied);
    if (result != MPI_SUCCESS) {
      try {
        other.clear(copy);
      } catch (const Failure&) {  // the first failure is told
      }
      throw Failure(result, "");
    }
    if (copied == 0) continue;
    const std::lock_guard lock(other.mutex_);
    other.values_.push_back({each.key, value});
  }
}

void Attributes::clear(std::uintptr_t object) {
  const std::vector<Value> all = values();
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    check_result(delete_value(*each->key, object, each->value));
    const std::lock_guard lock(mutex_);
    std::erase_if(values_, [&](const Value& value) { return value.key == each->key; });
  }
}

Attributes& attributes_of(MPI_Datatype type) { return type_of(type).attributes(); }

// --- The procedures, of communicators, types and windows alike

namespace {

template <class Handle>
constexpr Key::Of kind_of() {
  if constexpr (std::is_same_v<Handle, MPI_Comm>) return Key::Of::comm;
  if constexpr (std::is_same_v<Handle, MPI_Datatype>) return Key::Of::type;
  return Key::Of::win;
}

/// Types have no error handler.
template <class Handle>
On on(Handle handle) {
  if constexpr (std::is_same_v<Handle, MPI_Datatype>) {
    return {};
  } else {
    return On(handle);
  }
}

bool is_predefined_key(int key) {
  switch (key) {
    case MPI_TAG_UB:
    case MPI_HOST:
    case MPI_IO:
    case MPI_WTIME_IS_GLOBAL:
    case MPI_UNIVERSE_SIZE:
    case MPI_LASTUSEDCODE:
    case MPI_APPNUM:
    case MPI_WIN_BASE:
    case MPI_WIN_SIZE:
    case MPI_WIN_DISP_UNIT:
    case MPI_WIN_CREATE_FLAVOR:
    case MPI_WIN_MODEL:
      return true;
    default:
      return false;
  }
}

template <class Handle>
std::shared_ptr<const Key> valid_key(int number) {
  if (is_predefined_key(number))
    fail(MPI_ERR_KEYVAL, "the key {} is predefined; its value cannot be changed", number);
  auto key = find_key(number);
  if (key == nullptr || key->of != kind_of<Handle>()) {
    fail(MPI_ERR_KEYVAL, "the key {} was freed, or is none of this kind of object", number);
  }
  return key;
}

/// The standard's functions have small numbers as addresses: 0 copies nothing and deletes nothing,
/// 1 copies the value. (In MPICH's interface the second is a function like any other.)
template <class Copy>
bool is_duplicate(Copy* copy) {
  return reinterpret_cast<std::uintptr_t>(copy) == 1;
}

template <class Handle, class Copy, class Delete>
int create_key_call(const char* procedure, Copy* copy, Delete* on_delete, int* number,
                    void* extra) {
  return guarded(procedure, On(), [&] {
    if (number == nullptr) fail(MPI_ERR_ARG, "the place for the key is a null pointer");
    Key key;
    key.of = kind_of<Handle>();
    key.extra = extra;
    if (is_duplicate(copy)) {
      key.copy = [](std::uintptr_t, int, void*, void* value, void* place, int* copied) {
        *static_cast<void**>(place) = value;
        *copied = 1;
        return MPI_SUCCESS;
      };
    } else if (copy != nullptr) {
      key.copy = [copy](std::uintptr_t object, int each, void* state, void* value, void* place,
                        int* copied) {
        return copy(handle_of<Handle>(object), each, state, value, place, copied);
      };
    }
    if (on_delete != nullptr) {
      key.on_delete = [on_delete](std::uintptr_t object, int each, void* value, void* state) {
        return on_delete(handle_of<Handle>(object), each, value, state);
      };
    }
    *number = new_key(std::move(key));
  });
}

template <class Handle>
int free_key_call(const char* procedure, int* number) {
  return guarded(procedure, On(), [&] {
    if (number == nullptr) fail(MPI_ERR_ARG, "the place of the key is a null pointer");
    valid_key<Handle>(*number);
    free_key(*number);
    *number = MPI_KEYVAL_INVALID;
  });
}

template <class Handle>
int set_call(const char* procedure, Handle handle, int number, void* value) {
  return guarded(procedure, on(handle), [&] {
    attributes_of(handle).set(bits_of(handle), valid_key<Handle>(number), value);
  });
}

template <class Handle>
int get_call(const char* procedure, Handle handle, int number, void* value, int* found) {
  return guarded(procedure, on(handle), [&] {
    Attributes& attributes = attributes_of(handle);
    auto* const place = static_cast<void**>(value);
    if (is_predefined_key(number)) {
      *found = predefined_attribute(handle, number, place) ? 1 : 0;
      return;
    }
    if (number == MPI_KEYVAL_INVALID) fail(MPI_ERR_KEYVAL, "the key is MPI_KEYVAL_INVALID");
    *found = attributes.get(number, place) ? 1 : 0;
  });
}

template <class Handle>
int delete_call(const char* procedure, Handle handle, int number) {
  return guarded(procedure, on(handle), [&] {
    valid_key<Handle>(number);
    attributes_of(handle).remove(bits_of(handle), number);
  });
}

}  // namespace

int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function* copy,
                           MPI_Comm_delete_attr_function* on_delete, int* key, void* extra) {
  return create_key_call<MPI_Comm>("MPI_Comm_create_keyval", copy, on_delete, key, extra);
}
int MPI_Type_create_keyval(MPI_Type_copy_attr_function* copy,
                           MPI_Type_delete_attr_function* on_delete, int* key, void* extra) {
  return create_key_call<MPI_Datatype>("MPI_Type_create_keyval", copy, on_delete, key, extra);
}
int MPI_Win_create_keyval(MPI_Win_copy_attr_function* copy, MPI_Win_delete_attr_function* on_delete,
                          int* key, void* extra) {
  return create_key_call<MPI_Win>("MPI_Win_create_keyval", copy, on_delete, key, extra);
}

int MPI_Comm_free_keyval(int* key) { return free_key_call<MPI_Comm>("MPI_Comm_free_keyval", key); }
int MPI_Type_free_keyval(int* key) {
  return free_key_call<MPI_Datatype>("MPI_Type_free_keyval", key);
}
int MPI_Win_free_keyval(int* key) { return free_key_call<MPI_Win>("MPI_Win_free_keyval", key); }

int MPI_Comm_set_attr(MPI_Comm comm, int key, void* value) {
  return set_call("MPI_Comm_set_attr", comm, key, value);
}
int MPI_Type_set_attr(MPI_Datatype type, int key, void* value) {
  return set_call("MPI_Type_set_attr", type, key, value);
}
int MPI_Win_set_attr(MPI_Win win, int key, void* value) {
  return set_call("MPI_Win_set_attr", win, key, value);
}

int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  return get_call("MPI_Comm_get_attr", comm, key, value, found);
}
int MPI_Type_get_attr(MPI_Datatype type, int key, void* value, int* found) {
  return get_call("MPI_Type_get_attr", type, key, value, found);
}
int MPI_Win_get_attr(MPI_Win win, int key, void* value, int* found) {
  return get_call("MPI_Win_get_attr", win, key, value, found);
}

int MPI_Comm_delete_attr(MPI_Comm comm, int key) {
  return delete_call("MPI_Comm_delete_attr", comm, key);
}
int MPI_Type_delete_attr(MPI_Datatype type, int key) {
  return delete_call("MPI_Type_delete_attr", type, key);
}
int MPI_Win_delete_attr(MPI_Win win, int key) {
  return delete_call("MPI_Win_delete_attr", win, key);
}

// --- What MPI-1 called them

int MPI_Keyval_create(MPI_Copy_function* copy, MPI_Delete_function* on_delete, int* key,
                      void* extra) {
  return MPI_Comm_create_keyval(copy, on_delete, key, extra);
}
int MPI_Keyval_free(int* key) { return MPI_Comm_free_keyval(key); }
int MPI_Attr_put(MPI_Comm comm, int key, void* value) {
  return MPI_Comm_set_attr(comm, key, value);
}
int MPI_Attr_get(MPI_Comm comm, int key, void* value, int* found) {
  return MPI_Comm_get_attr(comm, key, value, found);
}
int MPI_Attr_delete(MPI_Comm comm, int key) { return MPI_Comm_delete_attr(comm, key); }

}  // namespace tutti::mpi
