// The procedures that pack data into a program's own buffers: in the representation of messages,
// and in external32.
#include <limits>
#include <string_view>

#include "bindings/mpi/errhandler.h"
#include "bindings/mpi/error.h"
#include "bindings/mpi/external32.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/type.h"

namespace tutti::mpi {
namespace {

void check_comm(MPI_Comm comm) {
  if (handler_place(comm) == nullptr) fail(MPI_ERR_COMM, "the communicator is null, or was freed");
}

void check_representation(const char* name) {
  if (name == nullptr || std::string_view(name) != "external32") {
    fail(MPI_ERR_ARG, "the representation is \"{}\"; the only one is \"external32\"",
         name == nullptr ? "" : name);
  }
}

/// Bytes of `count` elements, each of `each` bytes.
MPI_Count checked_bytes(MPI_Count count, MPI_Count each) {
  if (count < 0) fail(MPI_ERR_COUNT, "the count is {}; it has to be 0 or more", count);
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    fail(MPI_ERR_COUNT, "{} elements of {} bytes are more than 2^63 - 1 bytes", count, each);
  }
  return bytes;
}

/// Whether `bytes` are left in a buffer of `size` bytes from `position` on; then the position moves
/// on.
template <class Int>
std::size_t take_room(Int size, Int* position, MPI_Count bytes, const char* doing) {
  if (position == nullptr || *position < 0 || *position > size) {
    fail(MPI_ERR_ARG, "the position is not inside of the buffer of {} bytes", size);
  }
  if (bytes > size - *position) {
    fail(MPI_ERR_TRUNCATE, "{} {} bytes at byte {} of a buffer of {} bytes: there is no room",
         doing, bytes, *position, size);
  }
  const auto at = static_cast<std::size_t>(*position);
  *position += static_cast<Int>(bytes);
  return at;
}

template <class Int>
void put_size(Int* size, MPI_Count bytes) {
  if (size == nullptr) fail(MPI_ERR_ARG, "the place for the size is a null pointer");
  if (bytes > std::numeric_limits<Int>::max())
    *size = MPI_UNDEFINED;
  else
    *size = static_cast<Int>(bytes);
}

template <class Int>
int pack_call(const char* procedure, const void* in, Int count, MPI_Datatype handle, void* out,
              Int size, Int* position, MPI_Comm comm) {
  return guarded(procedure, comm, [&] {
    check_comm(comm);
    const Type& type = committed_type(handle);
    const std::size_t at = take_room(size, position, checked_bytes(count, type.size()), "packs");
    type.pack(in, count, static_cast<std::byte*>(out) + at);
  });
}

template <class Int>
int unpack_call(const char* procedure, const void* in, Int size, Int* position, void* out,
                Int count, MPI_Datatype handle, MPI_Comm comm) {
  return guarded(procedure, comm, [&] {
    check_comm(comm);
    const Type& type = committed_type(handle);
    const std::size_t at = take_room(size, position, checked_bytes(count, type.size()), "unpacks");
    type.unpack(static_cast<const std::byte*>(in) + at, out, count);
  });
}

template <class Int>
int pack_size_call(const char* procedure, Int count, MPI_Datatype handle, MPI_Comm comm,
                   Int* size) {
  return guarded(procedure, comm, [&] {
    check_comm(comm);
    put_size(size, checked_bytes(count, committed_type(handle).size()));
  });
}

template <class Count, class Place>
int pack_external_call(const char* procedure, const char* representation, const void* in,
                       Count count, MPI_Datatype handle, void* out, Place size, Place* position) {
  return guarded(procedure, On(), [&] {
    check_representation(representation);
    const Type& type = committed_type(handle);
    const std::size_t at =
        take_room(size, position, checked_bytes(count, type.external_size()), "packs");
    to_external32(in, count, type, static_cast<std::byte*>(out) + at);
  });
}

template <class Count, class Place>
int unpack_external_call(const char* procedure, const char* representation, const void* in,
                         Place size, Place* position, void* out, Count count, MPI_Datatype handle) {
  return guarded(procedure, On(), [&] {
    check_representation(representation);
    const Type& type = committed_type(handle);
    const std::size_t at =
        take_room(size, position, checked_bytes(count, type.external_size()), "unpacks");
    from_external32(static_cast<const std::byte*>(in) + at, count, type, out);
  });
}

template <class Count, class Place>
int pack_external_size_call(const char* procedure, const char* representation, Count count,
                            MPI_Datatype handle, Place* size) {
  return guarded(procedure, On(), [&] {
    check_representation(representation);
    put_size(size, checked_bytes(count, committed_type(handle).external_size()));
  });
}

}  // namespace

int MPI_Pack(const void* in, int count, MPI_Datatype type, void* out, int size, int* position,
             MPI_Comm comm) {
  return pack_call("MPI_Pack", in, count, type, out, size, position, comm);
}
int MPI_Pack_c(const void* in, MPI_Count count, MPI_Datatype type, void* out, MPI_Count size,
               MPI_Count* position, MPI_Comm comm) {
  return pack_call("MPI_Pack_c", in, count, type, out, size, position, comm);
}
int MPI_Unpack(const void* in, int size, int* position, void* out, int count, MPI_Datatype type,
               MPI_Comm comm) {
  return unpack_call("MPI_Unpack", in, size, position, out, count, type, comm);
}
int MPI_Unpack_c(const void* in, MPI_Count size, MPI_Count* position, void* out, MPI_Count count,
                 MPI_Datatype type, MPI_Comm comm) {
  return unpack_call("MPI_Unpack_c", in, size, position, out, count, type, comm);
}
int MPI_Pack_size(int count, MPI_Datatype type, MPI_Comm comm, int* size) {
  return pack_size_call("MPI_Pack_size", count, type, comm, size);
}
int MPI_Pack_size_c(MPI_Count count, MPI_Datatype type, MPI_Comm comm, MPI_Count* size) {
  return pack_size_call("MPI_Pack_size_c", count, type, comm, size);
}
int MPI_Pack_external(const char datarep[], const void* in, int count, MPI_Datatype type, void* out,
                      MPI_Aint size, MPI_Aint* position) {
  return pack_external_call("MPI_Pack_external", datarep, in, count, type, out, size, position);
}
int MPI_Pack_external_c(const char datarep[], const void* in, MPI_Count count, MPI_Datatype type,
                        void* out, MPI_Count size, MPI_Count* position) {
  return pack_external_call("MPI_Pack_external_c", datarep, in, count, type, out, size, position);
}
int MPI_Unpack_external(const char datarep[], const void* in, MPI_Aint size, MPI_Aint* position,
                        void* out, int count, MPI_Datatype type) {
  return unpack_external_call("MPI_Unpack_external", datarep, in, size, position, out, count, type);
}
int MPI_Unpack_external_c(const char datarep[], const void* in, MPI_Count size, MPI_Count* position,
                          void* out, MPI_Count count, MPI_Datatype type) {
  return unpack_external_call("MPI_Unpack_external_c", datarep, in, size, position, out, count,
                              type);
}
int MPI_Pack_external_size(const char datarep[], int count, MPI_Datatype type, MPI_Aint* size) {
  return pack_external_size_call("MPI_Pack_external_size", datarep, count, type, size);
}
int MPI_Pack_external_size_c(const char datarep[], MPI_Count count, MPI_Datatype type,
                             MPI_Count* size) {
  return pack_external_size_call("MPI_Pack_external_size_c", datarep, count, type, size);
}

}  // namespace tutti::mpi
