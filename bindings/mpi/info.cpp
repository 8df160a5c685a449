#include "bindings/mpi/info.h"

#include <algorithm>
#include <cstring>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"

namespace tutti::mpi {

void Info::set(const std::string& key, std::string value) {
  const std::lock_guard lock(mutex_);
  for (auto& [known, place] : entries_) {
    if (known == key) {
      place = std::move(value);
      return;
    }
  }
  entries_.emplace_back(key, std::move(value));
}

std::optional<std::string> Info::get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, value] : entries_) {
    if (known == key) return value;
  }
  return std::nullopt;
}

bool Info::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; }) != 0;
}

Info::Entries Info::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

Handles<Info, MPI_Info>& infos() {
  using All = Handles<Info, MPI_Info>;
  static All& handles = []() -> All& {
    auto* made = new All;
    made->predefine(MPI_INFO_ENV, std::make_shared<Info>());
    return *made;
  }();
  return handles;
}

InfoRef shared_info(MPI_Info info) {
  InfoRef object = infos().share(info);
  if (object == nullptr) fail(MPI_ERR_INFO, "the info object is null, was freed, or is none");
  return object;
}

InfoRef shared_info_or_null(MPI_Info info) {
  return info == MPI_INFO_NULL ? nullptr : shared_info(info);
}

// --- The procedures

namespace {

std::string valid_key(const char* key) {
  if (key == nullptr || *key == '\0') fail(MPI_ERR_INFO_KEY, "the key is empty");
  if (const std::size_t length = std::strlen(key); length >= MPI_MAX_INFO_KEY) {
    fail(MPI_ERR_INFO_KEY, "the key has {} characters; the most are {}", length,
         MPI_MAX_INFO_KEY - 1);
  }
  return key;
}

/// As much of a text as there is room for, and a zero.
void copy_text(const std::string& text, std::size_t room, char* to) {
  const std::size_t n = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

void check_place(const void* place) {
  if (place == nullptr) fail(MPI_ERR_ARG, "the place for a result is a null pointer");
}

}  // namespace

int MPI_Info_create(MPI_Info* info) {
  return guarded("MPI_Info_create", On(), [&] {
    check_place(info);
    *info = infos().add(std::make_shared<Info>());
  });
}

int MPI_Info_create_env(int, char**, MPI_Info* info) {
  return guarded("MPI_Info_create_env", On(), [&] {
    check_place(info);
    *info = infos().add(std::make_shared<Info>(shared_info(MPI_INFO_ENV)->entries()));
  });
}

int MPI_Info_dup(MPI_Info info, MPI_Info* copy) {
  return guarded("MPI_Info_dup", On(), [&] {
    check_place(copy);
    *copy = infos().add(std::make_shared<Info>(shared_info(info)->entries()));
  });
}

int MPI_Info_free(MPI_Info* info) {
  return guarded("MPI_Info_free", On(), [&] {
    check_place(info);
    shared_info(*info);
    if (infos().is_predefined(*info)) fail(MPI_ERR_INFO, "MPI_INFO_ENV cannot be freed");
    infos().remove(*info);
    *info = MPI_INFO_NULL;
  });
}

int MPI_Info_set(MPI_Info info, const char* key, const char* value) {
  return guarded("MPI_Info_set", On(), [&] {
    const InfoRef hints = shared_info(info);
    const std::string name = valid_key(key);
    if (value == nullptr) fail(MPI_ERR_INFO_VALUE, "the value of \"{}\" is a null pointer", name);
    if (const std::size_t length = std::strlen(value); length >= MPI_MAX_INFO_VAL) {
      fail(MPI_ERR_INFO_VALUE, "the value of \"{}\" has {} characters; the most are {}", name,
           length, MPI_MAX_INFO_VAL - 1);
    }
    hints->set(name, value);
  });
}

int MPI_Info_delete(MPI_Info info, const char* key) {
  return guarded("MPI_Info_delete", On(), [&] {
    const InfoRef hints = shared_info(info);
    const std::string name = valid_key(key);
    if (!hints->erase(name)) fail(MPI_ERR_INFO_NOKEY, "there is no key \"{}\"", name);
  });
}

int MPI_Info_get(MPI_Info info, const char* key, int length, char* value, int* found) {
  return guarded("MPI_Info_get", On(), [&] {
    const auto text = shared_info(info)->get(valid_key(key));
    if (length < 0) fail(MPI_ERR_ARG, "the room for the value is {}", length);
    *found = text ? 1 : 0;
    if (text) copy_text(*text, static_cast<std::size_t>(length) + 1, value);
  });
}

int MPI_Info_get_string(MPI_Info info, const char* key, int* room, char* value, int* found) {
  return guarded("MPI_Info_get_string", On(), [&] {
    const auto text = shared_info(info)->get(valid_key(key));
    if (*room < 0) fail(MPI_ERR_ARG, "the room for the value is {}", *room);
    *found = text ? 1 : 0;
    if (!text) return;
    if (*room > 0) copy_text(*text, static_cast<std::size_t>(*room), value);
    *room = static_cast<int>(text->size()) + 1;
  });
}

int MPI_Info_get_valuelen(MPI_Info info, const char* key, int* length, int* found) {
  return guarded("MPI_Info_get_valuelen", On(), [&] {
    const auto text = shared_info(info)->get(valid_key(key));
    *found = text ? 1 : 0;
    if (text) *length = static_cast<int>(text->size());
  });
}

int MPI_Info_get_nkeys(MPI_Info info, int* keys) {
  return guarded("MPI_Info_get_nkeys", On(),
                 [&] { *keys = static_cast<int>(shared_info(info)->entries().size()); });
}

int MPI_Info_get_nthkey(MPI_Info info, int n, char* key) {
  return guarded("MPI_Info_get_nthkey", On(), [&] {
    const Info::Entries entries = shared_info(info)->entries();
    if (n < 0 || static_cast<std::size_t>(n) >= entries.size()) {
      fail(MPI_ERR_ARG, "there is no key {}; there are {}", n, entries.size());
    }
    copy_text(entries[static_cast<std::size_t>(n)].first, MPI_MAX_INFO_KEY, key);
  });
}

}  // namespace tutti::mpi
