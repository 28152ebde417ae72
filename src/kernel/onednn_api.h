#include "base/mem.h"
/* The part of oneDNN 3's C interface that gemm_onednn.c uses, and the same made of oneDNN 2's: where 3 hands out
 * descriptions of memory and of primitives that only it can see into, 2 has structs that the caller fills.
 *
 * A Desc describes the shape, type and layout of a memory; it is destroyed by dnnl_memory_desc_destroy. A DescView is
 * lent.
 */
#ifndef QKV_KERNEL_ONEDNN_API_H
#define QKV_KERNEL_ONEDNN_API_H
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

#if DNNL_VERSION_MAJOR == 3

typedef dnnl_memory_desc_t Desc;
typedef const_dnnl_memory_desc_t DescView;

/* The shape and type of `like`, the layout left to the primitive. */
static inline dnnl_status_t desc_any(Desc *md, DescView like)
{
    int rank;
    const dnnl_dims_t *dims;
    dnnl_data_type_t type;
    dnnl_status_t s = dnnl_memory_desc_query(like, dnnl_query_ndims_s32, &rank);
    if (s == dnnl_success) s = dnnl_memory_desc_query(like, dnnl_query_dims, &dims);
    if (s == dnnl_success) s = dnnl_memory_desc_query(like, dnnl_query_data_type, &type);
    return s == dnnl_success ? dnnl_memory_desc_create_with_tag(md, rank, *dims, type, dnnl_format_tag_any) : s;
}

static inline dnnl_status_t post_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t post_eltwise(dnnl_post_ops_t post, dnnl_alg_kind_t kind, float alpha)
{
    return dnnl_post_ops_append_eltwise(post, kind, alpha, 0.0f);
}

#elif DNNL_VERSION_MAJOR == 2

typedef dnnl_memory_desc_t *Desc;
typedef const dnnl_memory_desc_t *DescView;

static inline dnnl_status_t dnnl_memory_desc_destroy(Desc md)
{
    mem_free(md);
    return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_clone(Desc *md, DescView of)
{
    *md = mem_alloc(sizeof **md);
    if (!*md) return dnnl_out_of_memory;
    **md = *of;
    return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_create_with_strides(Desc *md, int rank, const dnnl_dims_t dims,
                                                                 dnnl_data_type_t type, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t d;
    dnnl_status_t s = dnnl_memory_desc_init_by_strides(&d, rank, dims, type, strides);
    return s == dnnl_success ? dnnl_memory_desc_clone(md, &d) : s;
}

/* The shape and type of `like`, the layout left to the primitive. */
static inline dnnl_status_t desc_any(Desc *md, DescView like)
{
    dnnl_memory_desc_t d;
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(&d, like->ndims, like->dims, like->data_type, dnnl_format_tag_any);
    return s == dnnl_success ? dnnl_memory_desc_clone(md, &d) : s;
}

static inline dnnl_status_t post_sum(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1.0f); }

static inline dnnl_status_t post_eltwise(dnnl_post_ops_t post, dnnl_alg_kind_t kind, float alpha)
{
    return dnnl_post_ops_append_eltwise(post, 1.0f, kind, alpha, 0.0f);
}

static inline dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                              DescView a, DescView b, DescView bias, DescView c,
                                                              const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind, DescView x,
    DescView w, DescView bias, DescView y, const dnnl_dims_t stride, const dnnl_dims_t dilation,
    const dnnl_dims_t padding, const dnnl_dims_t padding_end, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(&d, prop, kind, x, w, bias, y, stride, dilation,
                                                                 padding, padding_end);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

static inline dnnl_status_t dnnl_deconvolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind, DescView x,
    DescView w, DescView bias, DescView y, const dnnl_dims_t stride, const dnnl_dims_t dilation,
    const dnnl_dims_t padding, const dnnl_dims_t padding_end, const_dnnl_primitive_attr_t attr)
{
    dnnl_deconvolution_desc_t d;
    dnnl_status_t s = dnnl_dilated_deconvolution_forward_desc_init(&d, prop, kind, x, w, bias, y, stride, dilation,
                                                                   padding, padding_end);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

#else
#error "this is written for oneDNN 2 and 3; build without it: meson configure build -Donednn=disabled"
#endif
#endif
