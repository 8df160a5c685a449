// The procedures that ask data types for their sizes, names and contents, and received messages for
// their counts.
#include <algorithm>
#include <cstring>
#include <limits>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/status.h"
#include "bindings/mpi/type.h"

namespace tutti::mpi {
namespace {

constexpr MPI_Count kUndefined = MPI_UNDEFINED;

/// A number for an argument of type To; MPI_UNDEFINED if it does not fit, as the standard says.
template <class To>
To fitting(MPI_Count n) {
  return n < std::numeric_limits<To>::min() || n > std::numeric_limits<To>::max()
             ? To{MPI_UNDEFINED}
             : static_cast<To>(n);
}

template <class To>
void put(To* place, MPI_Count n) {
  if (place == nullptr) fail(MPI_ERR_ARG, "the place for a result is a null pointer");
  *place = fitting<To>(n);
}

template <class Size>
int size_call(const char* procedure, MPI_Datatype type, Size* size) {
  return guarded(procedure, On(), [&] { put(size, type_of(type).size()); });
}

int extent_call(const char* procedure, MPI_Datatype handle, MPI_Aint* lower, MPI_Aint* extent) {
  return guarded(procedure, On(), [&] {
    const Type& type = type_of(handle);
    put(lower, type.lower_bound());
    put(extent, type.extent());
  });
}

int true_extent_call(const char* procedure, MPI_Datatype handle, MPI_Aint* lower,
                     MPI_Aint* extent) {
  return guarded(procedure, On(), [&] {
    const Type& type = type_of(handle);
    put(lower, type.true_lower_bound());
    put(extent, type.true_extent());
  });
}

/// How many elements of the type a message had, if it had whole ones.
template <class Count>
int count_call(const char* procedure, const MPI_Status* status, MPI_Datatype handle, Count* count) {
  return guarded(procedure, On(), [&] {
    const MPI_Count bytes = status_bytes(*status), size = type_of(handle).size();
    if (size == 0) {
      put(count, bytes == 0 ? 0 : kUndefined);
    } else {
      put(count, bytes % size == 0 ? bytes / size : kUndefined);
    }
  });
}

template <class Count>
int elements_call(const char* procedure, const MPI_Status* status, MPI_Datatype handle,
                  Count* count) {
  return guarded(procedure, On(), [&] {
    const MPI_Count bytes = status_bytes(*status);
    put(count, type_of(handle).elements_in(bytes).value_or(kUndefined));
  });
}

int set_elements_call(const char* procedure, MPI_Status* status, MPI_Datatype handle,
                      MPI_Count count) {
  return guarded(procedure, On(), [&] {
    if (count < 0) fail(MPI_ERR_COUNT, "the count is {}; it has to be 0 or more", count);
    set_status_bytes(*status, type_of(handle).bytes_of_elements(count));
  });
}

void check_width(const Contents& contents) {
  if (contents.large) {
    fail(MPI_ERR_TYPE,
         "the type was made by a procedure with large counts; ask for it with the one that ends "
         "with _c");
  }
}

template <class From, class To>
void copy_list(const std::vector<From>& from, MPI_Count room, To* to, const char* what) {
  if (room < static_cast<MPI_Count>(from.size())) {
    fail(MPI_ERR_ARG, "there is room for {} {}, and there are {}", room, what, from.size());
  }
  std::copy(from.begin(), from.end(), to);
}

/// A handle of a type that another one was made of: the program frees it, if it is not predefined.
MPI_Datatype handle_of(const TypeRef& type) {
  return type->predefined() ? predefined_handle(*type) : types().add(type);
}

void copy_types(const std::vector<TypeRef>& from, MPI_Count room, MPI_Datatype* to) {
  if (room < static_cast<MPI_Count>(from.size())) {
    fail(MPI_ERR_ARG, "there is room for {} types, and there are {}", room, from.size());
  }
  for (const TypeRef& type : from) *to++ = handle_of(type);
}

const Contents& made_contents(const Type& type) {
  if (type.predefined())
    fail(MPI_ERR_TYPE, "{} is predefined, and not made of anything", type.name());
  return type.contents();
}

}  // namespace

int MPI_Type_size(MPI_Datatype datatype, int* size) {
  return size_call("MPI_Type_size", datatype, size);
}
int MPI_Type_size_c(MPI_Datatype datatype, MPI_Count* size) {
  return size_call("MPI_Type_size_c", datatype, size);
}
int MPI_Type_size_x(MPI_Datatype datatype, MPI_Count* size) {
  return size_call("MPI_Type_size_x", datatype, size);
}

int MPI_Type_get_extent(MPI_Datatype datatype, MPI_Aint* lb, MPI_Aint* extent) {
  return extent_call("MPI_Type_get_extent", datatype, lb, extent);
}
int MPI_Type_get_extent_c(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  return extent_call("MPI_Type_get_extent_c", datatype, lb, extent);
}
int MPI_Type_get_extent_x(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  return extent_call("MPI_Type_get_extent_x", datatype, lb, extent);
}
int MPI_Type_get_true_extent(MPI_Datatype datatype, MPI_Aint* lb, MPI_Aint* extent) {
  return true_extent_call("MPI_Type_get_true_extent", datatype, lb, extent);
}
int MPI_Type_get_true_extent_c(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  return true_extent_call("MPI_Type_get_true_extent_c", datatype, lb, extent);
}
int MPI_Type_get_true_extent_x(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  return true_extent_call("MPI_Type_get_true_extent_x", datatype, lb, extent);
}

int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint* extent) {
  return guarded("MPI_Type_extent", On(), [&] { put(extent, type_of(datatype).extent()); });
}
int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint* displacement) {
  return guarded("MPI_Type_lb", On(), [&] { put(displacement, type_of(datatype).lower_bound()); });
}
int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint* displacement) {
  return guarded("MPI_Type_ub", On(), [&] {
    const Type& type = type_of(datatype);
    put(displacement, type.lower_bound() + type.extent());
  });
}

int MPI_Type_get_envelope(MPI_Datatype datatype, int* integers, int* addresses, int* datatypes,
                          int* combiner) {
  return guarded("MPI_Type_get_envelope", On(), [&] {
    const Contents& contents = type_of(datatype).contents();
    check_width(contents);
    *integers = static_cast<int>(contents.integers.size());
    *addresses = static_cast<int>(contents.addresses.size());
    *datatypes = static_cast<int>(contents.types.size());
    *combiner = contents.combiner;
  });
}

int MPI_Type_get_envelope_c(MPI_Datatype datatype, MPI_Count* integers, MPI_Count* addresses,
                            MPI_Count* counts, MPI_Count* datatypes, int* combiner) {
  return guarded("MPI_Type_get_envelope_c", On(), [&] {
    const Contents& contents = type_of(datatype).contents();
    *integers = static_cast<MPI_Count>(contents.integers.size());
    *addresses = static_cast<MPI_Count>(contents.addresses.size());
    *counts = static_cast<MPI_Count>(contents.counts.size());
    *datatypes = static_cast<MPI_Count>(contents.types.size());
    *combiner = contents.combiner;
  });
}

int MPI_Type_get_contents(MPI_Datatype datatype, int max_integers, int max_addresses,
                          int max_datatypes, int integers[], MPI_Aint addresses[],
                          MPI_Datatype datatypes[]) {
  return guarded("MPI_Type_get_contents", On(), [&] {
    const Contents& contents = made_contents(type_of(datatype));
    check_width(contents);
    copy_list(contents.integers, max_integers, integers, "integers");
    copy_list(contents.addresses, max_addresses, addresses, "addresses");
    copy_types(contents.types, max_datatypes, datatypes);
  });
}

int MPI_Type_get_contents_c(MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                            MPI_Count max_counts, MPI_Count max_datatypes, int integers[],
                            MPI_Aint addresses[], MPI_Count counts[], MPI_Datatype datatypes[]) {
  return guarded("MPI_Type_get_contents_c", On(), [&] {
    const Contents& contents = made_contents(type_of(datatype));
    copy_list(contents.integers, max_integers, integers, "integers");
    copy_list(contents.addresses, max_addresses, addresses, "addresses");
    copy_list(contents.counts, max_counts, counts, "large counts");
    copy_types(contents.types, max_datatypes, datatypes);
  });
}

int MPI_Type_get_name(MPI_Datatype datatype, char* name, int* length) {
  return guarded("MPI_Type_get_name", On(), [&] {
    const std::string text =
        datatype == MPI_DATATYPE_NULL ? "MPI_DATATYPE_NULL" : type_of(datatype).name();
    std::memcpy(name, text.c_str(), text.size() + 1);
    *length = static_cast<int>(text.size());
  });
}

int MPI_Type_set_name(MPI_Datatype datatype, const char* name) {
  return guarded("MPI_Type_set_name", On(), [&] {
    if (name == nullptr) fail(MPI_ERR_ARG, "the name is a null pointer");
    type_of(datatype).set_name(std::string(name, strnlen(name, MPI_MAX_OBJECT_NAME - 1)));
  });
}

int MPI_Get_count(const MPI_Status* status, MPI_Datatype datatype, int* count) {
  return count_call("MPI_Get_count", status, datatype, count);
}
int MPI_Get_count_c(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  return count_call("MPI_Get_count_c", status, datatype, count);
}
int MPI_Get_elements(const MPI_Status* status, MPI_Datatype datatype, int* count) {
  return elements_call("MPI_Get_elements", status, datatype, count);
}
int MPI_Get_elements_c(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  return elements_call("MPI_Get_elements_c", status, datatype, count);
}
int MPI_Get_elements_x(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  return elements_call("MPI_Get_elements_x", status, datatype, count);
}
int MPI_Status_set_elements(MPI_Status* status, MPI_Datatype datatype, int count) {
  return set_elements_call("MPI_Status_set_elements", status, datatype, count);
}
int MPI_Status_set_elements_c(MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  return set_elements_call("MPI_Status_set_elements_c", status, datatype, count);
}
int MPI_Status_set_elements_x(MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  return set_elements_call("MPI_Status_set_elements_x", status, datatype, count);
}

int MPI_Get_address(const void* location, MPI_Aint* address) {
  *address = reinterpret_cast<MPI_Aint>(location);
  return MPI_SUCCESS;
}
int MPI_Address(void* location, MPI_Aint* address) { return MPI_Get_address(location, address); }

// Addresses wrap: the difference of two is right even where their signed difference would overflow.
MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint displacement) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(base) +
                               static_cast<std::uintptr_t>(displacement));
}
MPI_Aint MPI_Aint_diff(MPI_Aint first, MPI_Aint second) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(first) -
                               static_cast<std::uintptr_t>(second));
}

}  // namespace tutti::mpi
