// Generated from api/fleet/v1/openapi.yaml by 'npm run generate' in console/.

export interface paths {
    "/whoami": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get the identity and permissions of the caller */
        get: operations["whoAmI"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Count clusters, node pools and syncs, and list the top reasons
         * @description Counts what the caller may read. The server counts in the background;
         *     `as_of` is the age of the counts. 503 means that the first count has not
         *     ended yet.
         */
        get: operations["getSummary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/stuck": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List clusters and node pools that are stuck, with the cause
         * @description Lists what has been not ready, or not synced to Gardener, for longer
         *     than `older_than`, the oldest first. A page that is not the last may be
         *     short, or empty.
         */
        get: operations["listStuck"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/can-i": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Check a permission of the caller
         * @description Answers whether the caller may use a verb on resources of a kind, or on
         *     one resource. A resource that the caller cannot see is not allowed.
         *     Whether the state of the resource allows the request is not checked.
         */
        get: operations["canI"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List clusters
         * @description With `limit` and `continue`, in order of creation, each row that matches
         *     during the whole listing is returned exactly once, whatever changes
         *     meanwhile. With `page` and `size` the same holds for a client that
         *     requests page after page within two minutes, ordered by id, name or
         *     created_time, from one process of the API.
         */
        get: operations["listClusters"];
        put?: never;
        /** Create a cluster */
        post: operations["createCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create many clusters
         * @description The lines are processed in batches as they arrive, each in one
         *     transaction. A rejected line rolls back its batch and ends the load;
         *     earlier batches are kept. The detail of the problem names the line and
         *     the number of resources created before.
         */
        post: operations["loadClusters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get a cluster */
        get: operations["getCluster"];
        put?: never;
        post?: never;
        /**
         * Delete a cluster
         * @description The resource stays in phase Deleting until every required adapter has
         *     reported it as finalized and its children are deleted. The request is
         *     idempotent.
         */
        delete: operations["deleteCluster"];
        options?: never;
        head?: never;
        /**
         * Replace the spec, the labels or the annotations of a cluster
         * @description The generation increases if the spec changes. A request that changes
         *     nothing returns 200 and is not recorded.
         */
        patch: operations["patchCluster"];
        trace?: never;
    };
    "/clusters/{id}/revisions": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /**
         * List the generations of a cluster
         * @description Lists the spec and labels of each generation with the author and time of
         *     the change, newest first. The number of kept generations is a setting.
         */
        get: operations["listClusterRevisions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/statuses": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** List the latest status report of each adapter on a cluster */
        get: operations["listClusterStatuses"];
        /** Report the status of a cluster */
        put: operations["putClusterStatus"];
        /** Report the status of a cluster */
        post: operations["postClusterStatus"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/force-delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Force the deletion of a cluster that is being deleted, without waiting for adapters
         * @description Its children are deleted, too.
         */
        post: operations["forceDeleteCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/sync": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the sync status of clusters to Gardener
         * @description Clusters that wait longest come first; synced ones come last, in order
         *     of creation. A cluster whose sync state changes while a client pages
         *     through the list may be missing or listed twice.
         */
        get: operations["listClusterSyncs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/sync/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry the sync of several clusters now
         * @description Each cluster is changed on its own. The clusters that failed are listed.
         */
        post: operations["retryClusterSyncs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/sync/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause the sync of several clusters
         * @description Each cluster is changed on its own. The clusters that failed are listed.
         */
        post: operations["pauseClusterSyncs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/sync/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume the sync of several clusters
         * @description Each cluster is changed on its own. The clusters that failed are listed.
         */
        post: operations["resumeClusterSyncs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/sync": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get the sync status of a cluster to Gardener */
        get: operations["getClusterSync"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/sync/retry": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry the sync of a cluster now
         * @description The sync becomes due now and its failure count is reset. A synced
         *     cluster is not changed. A cluster that a worker is syncing returns 409
         *     `sync_running`, a paused one 409 `sync_paused`.
         */
        post: operations["retryClusterSync"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/sync/pause": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause the sync of a cluster
         * @description The Shoot is not changed until the sync is resumed, or until the time
         *     `until`, when the pause ends automatically. A running call to Gardener
         *     is completed. The pause of a paused cluster keeps its beginning and gets
         *     the author, reason and end of this request. A request without a body
         *     changes only a pause that has an end. Pauses and their ends are change
         *     events.
         */
        post: operations["pauseClusterSync"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{id}/sync/resume": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume the sync of a paused cluster
         * @description The sync becomes due at the time it would have been due without the
         *     pause. The request is idempotent.
         */
        post: operations["resumeClusterSync"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/nodepools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List node pools
         * @description With `limit` and `continue`, in order of creation, each row that matches
         *     during the whole listing is returned exactly once, whatever changes
         *     meanwhile. With `page` and `size` the same holds for a client that
         *     requests page after page within two minutes, ordered by id, name or
         *     created_time, from one process of the API.
         */
        get: operations["listNodePools"];
        put?: never;
        /** Create a node pool; returns 422, because a node pool must be created under its cluster */
        post: operations["createNodePool"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/nodepools/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create many node pools; returns 422, because node pools must be created under their cluster */
        post: operations["loadNodePools"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/nodepools/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get a node pool */
        get: operations["getNodePool"];
        put?: never;
        post?: never;
        /**
         * Delete a node pool
         * @description The resource stays in phase Deleting until every required adapter has
         *     reported it as finalized and its children are deleted. The request is
         *     idempotent.
         */
        delete: operations["deleteNodePool"];
        options?: never;
        head?: never;
        /**
         * Replace the spec, the labels or the annotations of a node pool
         * @description The generation increases if the spec changes. A request that changes
         *     nothing returns 200 and is not recorded.
         */
        patch: operations["patchNodePool"];
        trace?: never;
    };
    "/nodepools/{id}/revisions": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /**
         * List the generations of a node pool
         * @description Lists the spec and labels of each generation with the author and time of
         *     the change, newest first. The number of kept generations is a setting.
         */
        get: operations["listNodePoolRevisions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/nodepools/{id}/statuses": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** List the latest status report of each adapter on a node pool */
        get: operations["listNodePoolStatuses"];
        /** Report the status of a node pool */
        put: operations["putNodePoolStatus"];
        /** Report the status of a node pool */
        post: operations["postNodePoolStatus"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/nodepools/{id}/force-delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Force the deletion of a node pool that is being deleted, without waiting for adapters
         * @description Its children are deleted, too.
         */
        post: operations["forceDeleteNodePool"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{parent}/nodepools": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
            };
            cookie?: never;
        };
        /**
         * List node pools of one cluster
         * @description With `limit` and `continue`, in order of creation, each row that matches
         *     during the whole listing is returned exactly once, whatever changes
         *     meanwhile. With `page` and `size` the same holds for a client that
         *     requests page after page within two minutes, ordered by id, name or
         *     created_time, from one process of the API.
         */
        get: operations["listNodePoolsOfCluster"];
        put?: never;
        /** Create a node pool */
        post: operations["createNodePoolOfCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{parent}/nodepools/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create many node pools of a cluster
         * @description The lines are processed in batches as they arrive, each in one
         *     transaction. A rejected line rolls back its batch and ends the load;
         *     earlier batches are kept. The detail of the problem names the line and
         *     the number of resources created before.
         */
        post: operations["loadNodePoolsOfCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{parent}/nodepools/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get a node pool */
        get: operations["getNodePoolOfCluster"];
        put?: never;
        post?: never;
        /**
         * Delete a node pool
         * @description The resource stays in phase Deleting until every required adapter has
         *     reported it as finalized and its children are deleted. The request is
         *     idempotent.
         */
        delete: operations["deleteNodePoolOfCluster"];
        options?: never;
        head?: never;
        /**
         * Replace the spec, the labels or the annotations of a node pool
         * @description The generation increases if the spec changes. A request that changes
         *     nothing returns 200 and is not recorded.
         */
        patch: operations["patchNodePoolOfCluster"];
        trace?: never;
    };
    "/clusters/{parent}/nodepools/{id}/statuses": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** List the latest status report of each adapter on a node pool */
        get: operations["listNodePoolStatusesOfCluster"];
        /** Report the status of a node pool */
        put: operations["putNodePoolStatusOfCluster"];
        /** Report the status of a node pool */
        post: operations["postNodePoolStatusOfCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/clusters/{parent}/nodepools/{id}/force-delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Force the deletion of a node pool that is being deleted, without waiting for adapters
         * @description Its children are deleted, too.
         */
        post: operations["forceDeleteNodePoolOfCluster"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/manifests": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List manifests
         * @description With `limit` and `continue`, in order of creation, each row that matches
         *     during the whole listing is returned exactly once, whatever changes
         *     meanwhile. With `page` and `size` the same holds for a client that
         *     requests page after page within two minutes, ordered by id, name or
         *     created_time, from one process of the API.
         */
        get: operations["listManifests"];
        put?: never;
        /** Create a manifest */
        post: operations["createManifest"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/manifests/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create many manifests
         * @description The lines are processed in batches as they arrive, each in one
         *     transaction. A rejected line rolls back its batch and ends the load;
         *     earlier batches are kept. The detail of the problem names the line and
         *     the number of resources created before.
         */
        post: operations["loadManifests"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/manifests/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get a manifest */
        get: operations["getManifest"];
        put?: never;
        post?: never;
        /**
         * Delete a manifest
         * @description The resource stays in phase Deleting until every required adapter has
         *     reported it as finalized and its children are deleted. The request is
         *     idempotent.
         */
        delete: operations["deleteManifest"];
        options?: never;
        head?: never;
        /**
         * Replace the spec, the labels or the annotations of a manifest
         * @description The generation increases if the spec changes. A request that changes
         *     nothing returns 200 and is not recorded.
         */
        patch: operations["patchManifest"];
        trace?: never;
    };
    "/manifests/{id}/statuses": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** List the latest status report of each adapter on a manifest */
        get: operations["listManifestStatuses"];
        /** Report the status of a manifest */
        put: operations["putManifestStatus"];
        /** Report the status of a manifest */
        post: operations["postManifestStatus"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/manifests/{id}/force-delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Force the deletion of a manifest that is being deleted, without waiting for adapters
         * @description Its children are deleted, too.
         */
        post: operations["forceDeleteManifest"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List workloads
         * @description With `limit` and `continue`, in order of creation, each row that matches
         *     during the whole listing is returned exactly once, whatever changes
         *     meanwhile. With `page` and `size` the same holds for a client that
         *     requests page after page within two minutes, ordered by id, name or
         *     created_time, from one process of the API.
         */
        get: operations["listWorkloads"];
        put?: never;
        /** Create a workload */
        post: operations["createWorkload"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workloads/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create many workloads
         * @description The lines are processed in batches as they arrive, each in one
         *     transaction. A rejected line rolls back its batch and ends the load;
         *     earlier batches are kept. The detail of the problem names the line and
         *     the number of resources created before.
         */
        post: operations["loadWorkloads"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workloads/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** Get a workload */
        get: operations["getWorkload"];
        put?: never;
        post?: never;
        /**
         * Delete a workload
         * @description The resource stays in phase Deleting until every required adapter has
         *     reported it as finalized and its children are deleted. The request is
         *     idempotent.
         */
        delete: operations["deleteWorkload"];
        options?: never;
        head?: never;
        /**
         * Replace the spec, the labels or the annotations of a workload
         * @description The generation increases if the spec changes. A request that changes
         *     nothing returns 200 and is not recorded.
         */
        patch: operations["patchWorkload"];
        trace?: never;
    };
    "/workloads/{id}/statuses": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        /** List the latest status report of each adapter on a workload */
        get: operations["listWorkloadStatuses"];
        /** Report the status of a workload */
        put: operations["putWorkloadStatus"];
        /** Report the status of a workload */
        post: operations["postWorkloadStatus"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/workloads/{id}/force-delete": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Force the deletion of a workload that is being deleted, without waiting for adapters
         * @description Its children are deleted, too.
         */
        post: operations["forceDeleteWorkload"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List or stream change events
         * @description Lists events by timestamp, newest first. With `Accept: text/event-
         *     stream`, streams new events, or those after a cursor (`after`), in order
         *     of arrival.
         */
        get: operations["listChanges"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes/buckets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Count change events by time step
         * @description Counts events, and failed ones, by time step and lane: by cluster, by
         *     node, or by actor. Without `since` it counts the 24 hours before
         *     `until`. Steps are whole seconds, and the last one may be shorter. The
         *     lanes with the most events come first; at most 50 are returned.
         */
        get: operations["countChanges"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes/{cluster}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the cluster, for events without their own. */
                cluster: string;
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Store change events
         * @description Takes one change event, an array of them, or CloudEvents with change
         *     events as data: structured, binary (attributes in `ce-` headers) or a
         *     batch. A request is stored completely or not at all. 202 means that the
         *     events are durable. An event with the same tenant, cluster, source and
         *     id as a stored one is a duplicate and is not stored again. An event
         *     without an id gets one derived from its content.
         */
        post: operations["tellChanges"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes/undelivered": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the deliveries of change events that fail
         * @description The cluster-worker's deliveries that were rejected or expired in the last
         *     24 hours, the newest first, and then those that failed and are tried
         *     again, the longest first. At most 100 are listed.
         */
        get: operations["listUndeliveredChanges"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes/{id}/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a change event. Slashes in it must be escaped. */
                id: components["parameters"]["changeID"];
            };
            cookie?: never;
        };
        /**
         * List the deliveries of a change event to sinks
         * @description Says to which sinks the event was sent, when, in how many attempts and
         *     with what result. Only the deliveries of the cluster-worker are recorded
         *     here; `recorded` is false for other events and for unknown ids. Records
         *     are kept as long as the event.
         */
        get: operations["listChangeDeliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/changes/{id}/resend": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a change event. Slashes in it must be escaped. */
                id: components["parameters"]["changeID"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a change event to its sinks again
         * @description Queues the event, with the same id, for each sink that rejected it or for
         *     which it expired, or for the given sink. A sink that accepted it receives
         *     it again only if it is named. A delivery that is pending is left alone,
         *     and so is a repeated request with the same `Idempotency-Key`. Author,
         *     sinks and reason are a change event. It needs the right to change
         *     resources.
         */
        post: operations["resendChange"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the registered schemas */
        get: operations["listSchemas"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/{kind}": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of a kind or of its collection, for example Cluster or clusters. */
                kind: string;
            };
            cookie?: never;
        };
        /** Get the schema of a kind */
        get: operations["getSchema"];
        /**
         * Register the schema of a kind
         * @description From now on, new and changed specs of all tenants must match the schema.
         *     Existing resources are not changed; the response counts those that
         *     violate the schema and lists some. References to other documents are not
         *     supported.
         */
        put: operations["putSchema"];
        post?: never;
        /** Delete the schema of a kind. Every JSON object is a valid spec again */
        delete: operations["deleteSchema"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description Kubernetes labels. */
        Labels: {
            [key: string]: string;
        };
        /**
         * @description Strings that selectors do not match: keys in the form of Kubernetes, and
         *     at most 256 KiB in total. `fleetloop apply` keeps the names of the fields
         *     that it has set in `fleetloop.io/applied-fields`.
         */
        Annotations: {
            [key: string]: string;
        };
        /** @description Desired state, as the owner sent it. The API stores it unchanged. */
        Spec: {
            [key: string]: unknown;
        };
        Metadata: {
            name: string;
            displayName?: string;
            labels?: components["schemas"]["Labels"];
        };
        Reference: {
            /** Format: uuid */
            id: string;
            kind: components["schemas"]["Kind"];
            href: string;
        };
        /** @enum {string} */
        Kind: "Cluster" | "NodePool" | "Manifest" | "Workload";
        /**
         * @description Pending: no required adapter has reported. Provisioning: adapters are
         *     working. Ready: all required adapters are available at the current
         *     generation. Failed: one is unhealthy at the current generation.
         *     Deleting: deletion was requested.
         * @enum {string}
         */
        Phase: "Pending" | "Provisioning" | "Ready" | "Failed" | "Deleting";
        /** @enum {string} */
        ConditionStatus: "True" | "False" | "Unknown";
        Resource: {
            /** Format: uuid */
            id: string;
            kind: components["schemas"]["Kind"];
            name: string;
            href: string;
            labels?: components["schemas"]["Labels"];
            annotations?: components["schemas"]["Annotations"];
            metadata: components["schemas"]["Metadata"];
            ownerResource?: components["schemas"]["Reference"];
            owner_references?: components["schemas"]["Reference"];
            spec: components["schemas"]["Spec"];
            /**
             * Format: int64
             * @description Increases when the spec changes or deletion is requested, and only then.
             */
            generation: number;
            /** Format: date-time */
            created_time: string;
            /** Format: date-time */
            updated_time: string;
            created_by?: string;
            updated_by?: string;
            /**
             * Format: date-time
             * @description Time at which deletion was requested.
             */
            deleted_time?: string;
            deleted_by?: string;
            status: components["schemas"]["Status"];
        };
        Status: {
            phase: components["schemas"]["Phase"];
            /**
             * Format: int64
             * @description Lowest generation in the latest reports of the required adapters; 0 if one has never reported.
             */
            observed_generation: number;
            /**
             * Format: date-time
             * @description Time of the oldest of the latest reports of the required adapters. For an adapter that has never reported, the creation time counts.
             */
            last_updated_time: string;
            /**
             * Format: date-time
             * @description Time of the last change of the phase.
             */
            last_transition_time: string;
            conditions: components["schemas"]["Condition"][];
            /** @description Status of the cluster's Shoot that a cluster-worker last observed. Absent before the first observation, and for other kinds. */
            shoot_status?: components["schemas"]["ShootStatus"];
            shoot_status_message?: string;
            /** @description Error of the last attempt to sync the cluster to Gardener. */
            sync_error?: string;
        };
        Condition: {
            type: string;
            /** @enum {string} */
            status: "True" | "False";
            reason?: string;
            message?: string;
            /** Format: int64 */
            observed_generation: number;
            /** Format: date-time */
            created_time: string;
            /** Format: date-time */
            last_updated_time: string;
            /** Format: date-time */
            last_transition_time: string;
        };
        /** @description The number of resources in each phase. A phase without resources is absent. */
        PhaseCounts: {
            [key: string]: number;
        };
        LabelSummary: {
            /** Format: int64 */
            total: number;
            phases: components["schemas"]["PhaseCounts"];
        };
        KindSummary: {
            /** Format: int64 */
            total: number;
            phases: components["schemas"]["PhaseCounts"];
            oldest_not_ready?: components["schemas"]["OldestResource"];
        };
        /** @description The resource that has been in this state for longest. Absent if no resource is in it. */
        OldestResource: {
            /** Format: uuid */
            id: string;
            name: string;
            phase: components["schemas"]["Phase"];
            /** Format: date-time */
            since: string;
        };
        SyncSummary: {
            /** @description The number of clusters in each state of the sync. */
            states: {
                [key: string]: number;
            };
            oldest_unsynced?: components["schemas"]["OldestResource"];
        };
        ReasonExample: {
            kind: components["schemas"]["Kind"];
            /** Format: uuid */
            id: string;
            name: string;
        };
        SummaryReason: {
            /** @description The message. Names, ids, numbers, addresses and quoted values are replaced, so that one cause is one reason. */
            reason: string;
            /**
             * @description sync, or the adapter that reported it, as adapter:NAME.
             * @example adapter:dns
             */
            source: string;
            /** Format: int64 */
            count: number;
            /**
             * Format: date-time
             * @description Time since which the example is held up, longer than any other resource with this reason.
             */
            since: string;
            example: components["schemas"]["ReasonExample"];
        };
        Summary: {
            /**
             * Format: date-time
             * @description The counts include every change that was made before this time.
             */
            as_of: string;
            /** @description The counts of clusters and nodepools. */
            kinds: {
                [key: string]: components["schemas"]["KindSummary"];
            };
            sync: components["schemas"]["SyncSummary"];
            deliveries: components["schemas"]["DeliverySummary"];
            /** @description The most frequent reasons for which resources are not ready or not synced. */
            top_reasons: components["schemas"]["SummaryReason"][];
            /** @description The counts of clusters by the values of each configured label. */
            labels: {
                [key: string]: {
                    [key: string]: components["schemas"]["LabelSummary"];
                };
            };
            /** @description For labels with more than 100 values, the number of values that are left out, which have the fewest clusters. */
            more_label_values?: {
                [key: string]: number;
            };
        };
        /** @description Deliveries of the cluster-worker's change events to sinks. A count of 10000 means at least as many. */
        DeliverySummary: {
            /**
             * Format: int64
             * @description Number of deliveries that failed and are tried again.
             */
            failing: number;
            /**
             * Format: date-time
             * @description First attempt of the delivery that fails for longest.
             */
            failing_since?: string;
            /**
             * Format: int64
             * @description Number of deliveries that were rejected or expired in the last 24 hours and not sent again.
             */
            given_up: number;
        };
        /**
         * @description adapter: a required adapter has not reported the current generation, or
         *     reported a failure. gardener: the sync to Gardener fails or waits, or
         *     Gardener reports an error. paused: the sync is paused. none_reported: no
         *     required adapter has reported. children: the deletion waits for node
         *     pools.
         * @enum {string}
         */
        StuckCauseType: "adapter" | "gardener" | "paused" | "none_reported" | "children";
        StuckCause: {
            type: components["schemas"]["StuckCauseType"];
            /** @description The first required adapter that holds the resource up. */
            adapter?: string;
            /** @description The reason that the adapter reported. */
            reason?: string;
            /** @description The code of the error of Gardener, or its class. */
            code?: string;
            message: string;
        };
        StuckResource: {
            kind: components["schemas"]["Kind"];
            /** Format: uuid */
            id: string;
            name: string;
            /**
             * Format: uuid
             * @description The cluster of a node pool.
             */
            cluster_id?: string;
            cluster_name?: string;
            phase: components["schemas"]["Phase"];
            /**
             * Format: date-time
             * @description Time since which the resource is not ready or not synced, whichever began earlier.
             */
            since: string;
            /** Format: int64 */
            generation: number;
            /** Format: int64 */
            observed_generation: number;
            cause: components["schemas"]["StuckCause"];
            /** @description Failed attempts of the sync of a cluster that is not synced. */
            attempts?: number;
            /**
             * Format: date-time
             * @description Earliest time of the next attempt of the sync.
             */
            next_attempt?: string;
        };
        StuckList: {
            items: components["schemas"]["StuckResource"][];
            /** @description Token of the next page; absent on the last page. */
            continue?: string;
        };
        /**
         * @description The resources that a permission covers: none, those of the caller's tenant, or those of all tenants.
         * @enum {string}
         */
        Scope: "none" | "tenant" | "all";
        Identity: {
            subject: string;
            /** @description Subject of the token, if the request impersonates `subject`. */
            impersonated_by?: string;
            /** @description Tenant of the resources that the caller creates; absent if the caller has no tenant. */
            tenant?: string;
            roles: ("system" | "viewer" | "operator")[];
            read_scope: components["schemas"]["Scope"];
            write_scope: components["schemas"]["Scope"];
            /** @description True if the caller may report the status of resources. */
            can_report_status: boolean;
        };
        List: {
            items: components["schemas"]["Resource"][];
            page?: number;
            /** @description Number of items in this page. */
            size: number;
            /**
             * Format: int64
             * @description Total number of matches, with paging by number.
             */
            total?: number;
            /** @description Token of the next page, with keyset paging; absent on the last page. */
            continue?: string;
            /**
             * @description With keyset paging, the start of the changes that the page may not
             *     include. Listing all pages and then reading the changes since the
             *     cursor of the first page misses nothing.
             */
            cursor?: string;
        };
        Changes: {
            /** @description The changed resources, each once and in its current state, ordered by last change. */
            items: components["schemas"]["Resource"][];
            /**
             * @description Ids of resources that were deleted, or whose labels changed and do
             *     not match the selector. May include resources that never matched.
             */
            removed: string[];
            /** @description Number of items. */
            size: number;
            /** @description Cursor for the next request. */
            cursor: string;
            /** @description True if more changes are available now. */
            more: boolean;
        };
        SpecSchema: {
            kind: components["schemas"]["Kind"];
            schema: {
                [key: string]: unknown;
            };
            /** Format: date-time */
            updated_time: string;
            updated_by: string;
            existing_resources?: components["schemas"]["SchemaWarnings"];
        };
        /** @description Resources that violate a registered schema. */
        SchemaWarnings: {
            /** Format: int64 */
            checked: number;
            /** Format: int64 */
            invalid: number;
            examples: {
                /** Format: uuid */
                id: string;
                name: string;
                tenant: string;
                errors: components["schemas"]["FieldError"][];
            }[];
        };
        CreateRequest: {
            kind?: components["schemas"]["Kind"];
            /**
             * @description DNS label, unique among the resources of the same kind, tenant and
             *     cluster that are not being deleted: 3 to 53 characters for a
             *     cluster, 3 to 15 for a node pool, 3 to 63 for others. Can be given
             *     as metadata.name instead.
             */
            name?: string;
            labels?: components["schemas"]["Labels"];
            annotations?: components["schemas"]["Annotations"];
            metadata?: {
                name?: string;
                displayName?: string;
                labels?: components["schemas"]["Labels"];
            } & {
                [key: string]: unknown;
            };
            spec: components["schemas"]["Spec"];
        } & {
            [key: string]: unknown;
        };
        /** @description Result of a bulk load; in a problem, the result up to the error. */
        LoadResult: {
            /** Format: int64 */
            created: number;
            /**
             * Format: int64
             * @description Number of resources that already existed.
             */
            skipped: number;
        };
        PatchRequest: {
            spec?: components["schemas"]["Spec"];
            labels?: components["schemas"]["Labels"];
            annotations?: components["schemas"]["Annotations"];
        };
        ForceDeleteRequest: {
            reason: string;
        } & {
            [key: string]: unknown;
        };
        ReportCondition: {
            type: string;
            status: components["schemas"]["ConditionStatus"];
            reason?: string;
            message?: string;
        } & {
            [key: string]: unknown;
        };
        Report: {
            adapter: string;
            /** Format: int64 */
            observed_generation: number;
            /**
             * Format: date-time
             * @description Time of the adapter's observation; by default now. At most 30 minutes in the past and 5 minutes in the future.
             */
            observed_time?: string;
            /** @description At least Available, Applied and Health, each once. */
            conditions: components["schemas"]["ReportCondition"][];
            data?: {
                [key: string]: unknown;
            } | null;
            metadata?: {
                [key: string]: unknown;
            } | null;
        } & {
            [key: string]: unknown;
        };
        AdapterCondition: {
            type: string;
            status: components["schemas"]["ConditionStatus"];
            reason?: string;
            message?: string;
            /** Format: date-time */
            last_transition_time: string;
        };
        AdapterStatus: {
            adapter: string;
            /** Format: int64 */
            observed_generation: number;
            conditions: components["schemas"]["AdapterCondition"][];
            data?: {
                [key: string]: unknown;
            };
            metadata?: {
                [key: string]: unknown;
            };
            /** Format: date-time */
            created_time: string;
            /** Format: date-time */
            last_report_time: string;
        };
        AdapterStatusList: {
            items: components["schemas"]["AdapterStatus"][];
            page: number;
            size: number;
            /** Format: int64 */
            total: number;
        };
        /**
         * @description pending: waits for a worker. running: a worker is syncing it.
         *     backing_off: failed and waits for the next attempt. stuck: failed at
         *     least 8 times in a row; still retried. paused: the sync was paused by a
         *     user. synced: Gardener matches the cluster.
         * @enum {string}
         */
        SyncState: "pending" | "running" | "backing_off" | "stuck" | "paused" | "synced";
        /**
         * @description pending: requested, not yet observed in Gardener. progressing: Gardener
         *     is creating or changing it. ready: fully operational. error: Gardener
         *     failed; the message has the error. deleting: Gardener is deleting it.
         *     deleted: its deletion is confirmed.
         * @enum {string}
         */
        ShootStatus: "pending" | "progressing" | "ready" | "error" | "deleting" | "deleted";
        Permission: {
            allowed: boolean;
            /** @description Why it is not allowed; empty if it is. */
            reason: string;
        };
        Revision: {
            /** Format: int64 */
            generation: number;
            /**
             * Format: date-time
             * @description Time of the change that began the generation.
             */
            created_time: string;
            /** @description Author of that change. */
            actor: string;
            /** @description True if that change was the request to delete the resource. */
            deleting?: boolean;
            spec: {
                [key: string]: unknown;
            };
            /** @description Labels at the beginning of the generation. */
            labels: {
                [key: string]: string;
            };
        };
        RevisionList: {
            items: components["schemas"]["Revision"][];
            /** @description Token of the next page; absent on the last page. */
            continue?: string;
        };
        /** @description The pause of the sync; absent if it is not paused. */
        SyncPause: {
            /** @description The author of the pause. */
            by?: string;
            reason?: string;
            /** Format: date-time */
            since: string;
            /**
             * Format: date-time
             * @description Time at which the pause ends automatically.
             */
            until?: string;
        };
        SyncControl: {
            reason?: string;
            /**
             * Format: date-time
             * @description Future time at which the pause ends automatically. Only for action pause.
             */
            until?: string;
        };
        BulkSyncControl: {
            /** @description Ids of clusters. */
            ids: string[];
            reason?: string;
            /**
             * Format: date-time
             * @description Time in the future at which the pauses end by themselves. Only for a pause.
             */
            until?: string;
        };
        BulkSyncResult: {
            /** @description Number of syncs that changed. A sync that was already as requested neither changed nor failed. */
            changed: number;
            failed: components["schemas"]["BulkSyncFailure"][];
        };
        BulkSyncFailure: {
            id: string;
            /** @description Code of the problem, for example not_found. */
            code: string;
            detail: string;
        };
        ClusterSync: {
            /** Format: uuid */
            cluster_id: string;
            name: string;
            state: components["schemas"]["SyncState"];
            /**
             * Format: date-time
             * @description Time at which the current version of the cluster was synced to Gardener; null if it is not synced.
             */
            synced: string | null;
            /** @description True if the pending change is the deletion. */
            deleting: boolean;
            /**
             * Format: date-time
             * @description Time since which the cluster has unsynced changes.
             */
            unsynced_since?: string;
            /** @description Number of failed attempts since the last success or change. */
            sync_attempts: number;
            /** Format: date-time */
            sync_last_attempt?: string;
            /** @description Error of the last attempt. */
            sync_error?: string;
            /** @description Class of the error. */
            error_class?: string;
            /**
             * Format: date-time
             * @description Earliest time of the next attempt; absent if the cluster is synced
             *     or paused. While a worker syncs the cluster, the time at which
             *     another one may take over.
             */
            next_attempt?: string;
            /** @description The reason why no worker claims the cluster although it is due. Absent if workers claim it as usual. */
            waiting?: {
                /** @description The dependency that is unavailable: gardener. */
                for: string;
                /** Format: date-time */
                since: string;
                /** @description The error that a worker observed. */
                reason: string;
                /** @description The worker that observed it. */
                reported_by: string;
            };
            /** @description The worker that is syncing the cluster. */
            claimed_by?: string;
            /** Format: date-time */
            paused_at?: string;
            pause?: components["schemas"]["SyncPause"];
            /**
             * Format: int64
             * @description Increases with every change of the cluster and its node pools that must be synced to Gardener.
             */
            generation: number;
            /**
             * Format: int64
             * @description The last generation that was synced to Gardener; 0 if none was.
             */
            synced_generation: number;
            shoot_name?: string;
            shoot_status?: components["schemas"]["ShootStatus"];
            shoot_status_message?: string;
            /**
             * Format: date-time
             * @description Time of the last observation of the Shoot.
             */
            shoot_status_updated?: string;
        };
        ClusterSyncList: {
            items: components["schemas"]["ClusterSync"][];
            /** @description Token of the next page; absent on the last page. */
            continue?: string;
        };
        ChangeEventInput: {
            /** @description The action, for example cordon. */
            action: string;
            /** @description Time of the action, RFC 3339; a colon in the offset is optional. Required, except in a CloudEvent with the attribute time. */
            timestamp?: string;
            /** @description The component that performed the action. */
            source?: string;
            cluster?: string;
            node?: string;
            healthEvent?: components["schemas"]["ChangeHealthEvent"];
            /** @description True if the action was only simulated. */
            dryRun?: boolean;
            /** @description Id of the event; the same when the event is sent again. */
            id?: string;
            /** @description The object of the action, if it is not a node. */
            subject?: string;
            /** @description One line for people. */
            summary?: string;
            /** @enum {string} */
            outcome?: "" | "succeeded" | "failed";
            reason?: string;
            /** @description Id shared by the events of one sequence of changes. */
            session?: string;
            links?: components["schemas"]["ChangeLink"][];
            /**
             * @description Additional names and values. `who` is the person who performed the
             *     action. `tenant` is the tenant of the event, if a component that
             *     serves all tenants sends it.
             */
            details?: {
                [key: string]: string;
            };
            /**
             * @description The changed fields; for a created or deleted resource, its fields.
             *     At most 32 are stored.
             */
            changes?: components["schemas"]["ChangedField"][];
            /** @description Number of further changed fields. */
            changesOmitted?: number;
        } & {
            [key: string]: unknown;
        };
        ChangeEvent: {
            /** @description The person who performed the action if known, otherwise the source. */
            actor: string;
            /** Format: date-time */
            recordedAt: string;
            /** @description Subject of the token that sent the event; absent for the fleet API itself. */
            recordedBy?: string;
            /** @description Tenant of the event; absent if it has none. */
            tenant?: string;
            /** @description The action, for example cordon. */
            action: string;
            /** @description Time of the action, RFC 3339; a colon in the offset is optional. */
            timestamp: string;
            /** @description The component that performed the action. */
            source: string;
            cluster: string;
            node: string;
            healthEvent?: components["schemas"]["ChangeHealthEvent"];
            /** @description True if the action was only simulated. */
            dryRun: boolean;
            /** @description Id of the event; the same when the event is sent again. */
            id: string;
            /** @description The object of the action, if it is not a node. */
            subject?: string;
            /** @description One line for people. */
            summary?: string;
            /** @enum {string} */
            outcome?: "succeeded" | "failed";
            reason?: string;
            /** @description Id shared by the events of one sequence of changes. */
            session?: string;
            links?: components["schemas"]["ChangeLink"][];
            /**
             * @description Additional names and values. `who` is the person who performed the
             *     action. `tenant` is the tenant of the event, if a component that
             *     serves all tenants sends it.
             */
            details?: {
                [key: string]: string;
            };
            /**
             * @description The changed fields; for a created or deleted resource, its fields.
             *     At most 32 are stored.
             */
            changes?: components["schemas"]["ChangedField"][];
            /** @description Number of further changed fields. */
            changesOmitted?: number;
        };
        ChangedField: {
            /** @description Path of the field, such as spec.version or spec.workers[0].maximum. */
            field: string;
            /**
             * @description The value before the change, any JSON; absent if the field was not
             *     set. A value of more than 256 characters becomes a string that ends
             *     with an ellipsis. A value that may be secret is "[redacted]".
             */
            before?: unknown;
            /** @description The value after the change; absent if the field was removed. */
            after?: unknown;
        };
        /** @description The health report that led to a change. */
        ChangeHealthEvent: {
            checkName?: string;
            errorCode?: string;
            agent?: string;
            isFatal?: boolean;
            message?: string;
            errorCodes?: string[];
        };
        ChangeLink: {
            href: string;
            text?: string;
        };
        ChangeEventList: {
            items: components["schemas"]["ChangeEvent"][];
            /** @description Token of the next page, with older events; absent on the last page. */
            continue?: string;
            /**
             * @description Cursor at which to start a stream that misses nothing after this
             *     list. The stream may repeat events that arrived while the list was
             *     made.
             */
            cursor: string;
        };
        ChangeBuckets: {
            /** Format: date-time */
            since: string;
            /** Format: date-time */
            until: string;
            /** @description Length of a time step. The first one starts at `since`. */
            step_seconds: number;
            lanes: components["schemas"]["ChangeLane"][];
            /** @description Number of lanes that are left out. */
            more_lanes: number;
        };
        ChangeLane: {
            /** @description Name of the cluster, node or actor. */
            name: string;
            /** @description Cluster of the node. */
            cluster?: string;
            /** @description Number of events in each time step. */
            counts: number[];
            /** @description Number of failed events in each time step. */
            failed: number[];
        };
        ChangeDeliveries: {
            /** @description Id of the event. */
            id: string;
            /** @description Whether the fleet API has deliveries of this event. */
            recorded: boolean;
            /** @description Why it has none. */
            reason?: string;
            /** @description One for each sink, by name. */
            items: components["schemas"]["ChangeDelivery"][];
        };
        ChangeDelivery: {
            /** @description Name of the sink. */
            sink: string;
            /** @description Format in which the sink receives events, for example slack. */
            type: string;
            /**
             * @description `pending`: it is being sent, or waits for its next attempt or for an
             *     earlier event of its cluster. `skipped`: the sink does not want this
             *     action. `rejected`: the sink rejected the content. `expired`: it grew
             *     too old before the sink accepted it.
             * @enum {string}
             */
            state: "pending" | "delivered" | "skipped" | "rejected" | "expired";
            /** @description Number of requests whose result is known. */
            attempts: number;
            /** Format: date-time */
            first_attempt_at?: string;
            /** Format: date-time */
            last_attempt_at?: string;
            /**
             * Format: date-time
             * @description Set while a failed delivery waits.
             */
            next_attempt_at?: string;
            /**
             * Format: date-time
             * @description Time of the delivery, or when it was given up.
             */
            finished_at?: string;
            /** @description Error class of the last attempt, for example timeout. */
            error?: string;
            /** @description HTTP status of the last failed attempt, if there was a response. */
            http_status?: number;
        };
        UndeliveredChanges: {
            items: components["schemas"]["UndeliveredChange"][];
            /** @description Whether there are more. */
            more: boolean;
        };
        /** @description A delivery that failed, and its event. */
        UndeliveredChange: {
            /** @description Id of the event. */
            event_id: string;
            /**
             * @description Action of the event.
             * @example shoot-failed
             */
            action: string;
            /** @description Name of the cluster. */
            cluster: string;
            /**
             * Format: date-time
             * @description Time of the event.
             */
            time: string;
            delivery: components["schemas"]["ChangeDelivery"];
        };
        ChangeResend: {
            /** @description Name of one sink. */
            sink?: string;
            reason?: string;
        };
        ChangeResent: {
            /** @description Sinks for which the event was queued. */
            queued: string[];
            /** @description The deliveries of the event now. */
            items: components["schemas"]["ChangeDelivery"][];
        };
        ChangesAccepted: {
            /** @description Number of events that were stored. */
            stored: number;
            /** @description Number of events that were stored before, including conflicts. */
            duplicates: number;
            /** @description Ids of events whose content differs from the stored event with the same id. The stored event is kept. */
            conflicts: string[];
        };
        CloudEvent: {
            /** @enum {string} */
            specversion: "1.0";
            id: string;
            source: string;
            type: string;
            time?: string;
            subject?: string;
            datacontenttype?: string;
            /** @description A ChangeEventInput; the attributes are used for a missing id, timestamp, source or subject. */
            data?: {
                [key: string]: unknown;
            };
            data_base64?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description An error, RFC 9457. */
        Problem: {
            type: string;
            title: string;
            status: number;
            detail?: string;
            instance?: string;
            /** @enum {string} */
            code: "invalid_body" | "invalid_fields" | "invalid_query" | "unauthenticated" | "forbidden" | "not_found" | "method_not_allowed" | "name_taken" | "being_deleted" | "not_being_deleted" | "has_children" | "too_many_adapters" | "sync_running" | "sync_paused" | "shoot_not_deleted" | "cursor_expired" | "precondition_failed" | "body_too_large" | "unsupported_media_type" | "parent_required" | "timestamp_out_of_range" | "internal" | "unavailable";
            /** @description Id of the request in the logs of the API. */
            trace_id?: string;
            errors?: components["schemas"]["FieldError"][];
            loaded?: components["schemas"]["LoadResult"];
        };
        FieldError: {
            field: string;
            /** @enum {string} */
            constraint?: "required" | "min" | "max" | "min_length" | "max_length" | "pattern" | "enum" | "format" | "unique";
            /** @description JSON pointer to the field in the body, for violations of a schema. */
            pointer?: string;
            message: string;
            /** @description The invalid value. */
            value?: unknown;
        };
    };
    responses: {
        /** @description The resource. */
        Resource: {
            headers: {
                ETag: components["headers"]["ETag"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Resource"];
            };
        };
        /** @description Created. */
        Created: {
            headers: {
                ETag: components["headers"]["ETag"];
                /** @description Path of the resource. */
                Location: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Resource"];
            };
        };
        /** @description All lines were processed. */
        Loaded: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["LoadResult"];
            };
        };
        /** @description A page. */
        List: {
            headers: {
                ETag: components["headers"]["ETag"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["List"];
            };
        };
        /** @description A page; the changes, with changed_since; or the events, with watch. */
        ListOrChanges: {
            headers: {
                ETag: components["headers"]["ETag"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["List"] | components["schemas"]["Changes"];
                "text/event-stream": string;
            };
        };
        /** @description The client has the current version. */
        NotModified: {
            headers: {
                ETag: string;
                [name: string]: unknown;
            };
            content?: never;
        };
        /** @description A page of status reports, ordered by adapter. */
        Reports: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["AdapterStatusList"];
            };
        };
        /** @description The answer. */
        Permission: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Permission"];
            };
        };
        /** @description A page. */
        Revisions: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RevisionList"];
            };
        };
        /** @description The report is stored. */
        Reported: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["AdapterStatus"];
            };
        };
        /**
         * @description The report is discarded: its generation is ahead of the resource, or
         *     older than that of the adapter's last report; or it was observed before
         *     the last report of the same generation; or its condition Available is
         *     Unknown although an earlier report knew it.
         */
        Discarded: {
            headers: {
                [name: string]: unknown;
            };
            content?: never;
        };
        /**
         * @description A page; or a stream of server-sent events: `changed` with a ChangeEvent
         *     as data, `bookmark` or `error`. The id of an event is the cursor after
         *     it.
         */
        ChangeEvents: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangeEventList"];
                "text/event-stream": string;
            };
        };
        /** @description The counts. */
        ChangeBuckets: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangeBuckets"];
            };
        };
        /** @description The deliveries. */
        ChangeDeliveries: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangeDeliveries"];
            };
        };
        /** @description The deliveries. */
        UndeliveredChanges: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["UndeliveredChanges"];
            };
        };
        /** @description The event is queued. */
        ChangeResent: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangeResent"];
            };
        };
        /** @description There was nothing to queue. */
        ChangeNotResent: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangeResent"];
            };
        };
        /** @description All events are stored. */
        ChangesAccepted: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChangesAccepted"];
            };
        };
        /** @description A change event is older than the retention, or in the future. */
        TimestampOutOfRange: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The sync status of the cluster. */
        ClusterSync: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ClusterSync"];
            };
        };
        /** @description The counts. */
        Summary: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Summary"];
            };
        };
        /** @description A page. */
        Stuck: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["StuckList"];
            };
        };
        /** @description The identity of the caller. */
        Identity: {
            headers: {
                /** @description Version of the server, such as 1.2.0, or dev, and after a space its commit. */
                "Fleet-Api-Version"?: string;
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Identity"];
            };
        };
        /** @description The result. */
        BulkSyncResult: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["BulkSyncResult"];
            };
        };
        /** @description A page. */
        ClusterSyncs: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ClusterSyncList"];
            };
        };
        /** @description The request is invalid; `errors` lists the invalid fields. */
        Invalid: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The token is missing or invalid. */
        Unauthenticated: {
            headers: {
                "WWW-Authenticate": string;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The token does not permit the request. */
        Forbidden: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The resource does not exist, or the token may not see it. */
        NotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The state of the resource does not allow the request. */
        Conflict: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /**
         * @description The changes since the cursor are no longer retained, or the cursor is
         *     older than the last restore of the database. List everything again.
         */
        CursorExpired: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The resource has changed since the ETag in If-Match. */
        PreconditionFailed: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is too large. */
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The content type is not supported. */
        MediaType: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The resource must be created under its cluster. */
        ParentRequired: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Internal error. */
        Internal: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /**
         * @description A service that the API depends on is unreachable, or the request took too
         *     long in the database. Retry-After is then more than 30 seconds.
         */
        Unavailable: {
            headers: {
                "Retry-After": string;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: {
        /** @description Id of the resource, a UUID. Ids are in order of creation. */
        id: string;
        /** @description Id of the cluster. */
        parent: string;
        /**
         * @description Kubernetes label selector, for example `region=us-east,tier in
         *     (a,b),!retired`.
         */
        labels: string;
        /**
         * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
         *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
         *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
         *     columns id, name, kind, generation, created_time, updated_time,
         *     deleted_time, created_by, updated_by, deleted_by, owner_id,
         *     status.phase, status.observed_generation, status.last_updated_time,
         *     status.last_transition_time, labels.KEY, spec.PATH,
         *     status.conditions.TYPE and its .reason, .observed_generation,
         *     .last_updated_time and .last_transition_time. A comparison with a
         *     missing value is false, and its negation is true. PATH is a dot-
         *     separated path in the spec. A query can compare spec.PATH at most 8
         *     times, with a string, a number, true or false. No index supports such a
         *     comparison, so all rows that match the rest of the query are read.
         * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
         */
        search: string;
        /**
         * @description Selects keyset paging. Maximum number of items in a page. A page of
         *     large resources ends at about 8 MiB.
         */
        limit: number;
        /**
         * @description The token `continue` of the previous page. Repeat labels, search, fields
         *     and order. It does not expire.
         */
        continue: string;
        /** @description Selects paging by number. Number of the page. */
        page: number;
        /**
         * @description Maximum number of items in a page. A page of resources with more than
         *     about 8 MiB is refused as invalid_query; the problem names the size that
         *     fits.
         */
        size: number;
        /**
         * @deprecated
         * @description Deprecated name of size.
         */
        pageSize: number;
        /**
         * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
         *     generation, created_time, updated_time, deleted_time, created_by,
         *     updated_by, deleted_by, owner_id, status.phase,
         *     status.last_transition_time), optionally followed by asc or desc. The id
         *     breaks ties, in the direction of the last term. Missing values sort as
         *     the largest. The default is `created_time desc` for paging by number and
         *     `id` for keyset paging. Indexes serve the orders by id, created_time,
         *     name (clusters), and status.phase and status.last_transition_time
         *     (clusters and node pools); other orders sort all matching rows.
         */
        order: string;
        /**
         * @description Comma-separated fields to return for each resource, in addition to the
         *     id. Dots separate nested fields, for example status.conditions.type.
         *     Fields that a resource does not have are null.
         */
        fields: string;
        /**
         * @deprecated
         * @description Deprecated. The column to sort by; order is then the direction.
         */
        orderBy: string;
        /** @description Rejects unknown parameters. */
        strict: boolean;
        /**
         * @description Validates and authorizes the request and returns its result, but changes
         *     and records nothing. Changes without this parameter reject it.
         */
        dryRun: boolean;
        /**
         * @description Comma-separated ids of the resources to return. Missing resources are
         *     left out. Cannot be combined with parameters other than strict. Ids of
         *     resources with more than about 8 MiB are refused as invalid_query; ask
         *     for fewer.
         */
        ids: string;
        /**
         * @description Returns the changes since a cursor, which comes from a keyset page or
         *     from the last response, of any collection. Can be combined with labels,
         *     limit (default 500) and watch. A page of large resources ends at about
         *     8 MiB. Changes are retained for one hour by default; clients with an
         *     older cursor must list again.
         */
        changedSince: string;
        /**
         * @description Returns a stream of server-sent events (`changed`, `removed`,
         *     `bookmark`, `error`): first the changes since the cursor, then new
         *     changes. The id of an event is the cursor after it. Without a cursor the
         *     stream starts now.
         */
        watch: boolean;
        /** @description Subject to impersonate. Every request takes this header. The token needs the role operator. */
        impersonateUser: string;
        /** @description Tenant of the impersonated subject. Without a role, it is required. */
        impersonateTenant: string;
        /** @description A role of the impersonated subject - system, viewer or operator. Repeat the header for several. */
        impersonateRole: "system" | "viewer" | "operator";
        /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
        lastEventID: string;
        /** @description ETags of the versions that the client has. If one is current, the response is 304. */
        ifNoneMatch: string;
        /**
         * @description The value of this header in the response to a write. The response
         *     includes that write. Every GET takes this header. With
         *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
         */
        readAfter: string;
        /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
        ifMatch: string;
        /**
         * @description Policy for names that exist: `fail` ends the load, `skip` keeps the
         *     existing resource and continues, so that an interrupted load can be
         *     repeated.
         */
        ifExists: "fail" | "skip";
        /**
         * @description Comma-separated sync states to return; by default all.
         * @example [
         *       "stuck",
         *       "backing_off"
         *     ]
         */
        syncState: components["schemas"]["SyncState"][];
        /** @description Maximum number of items in a page. */
        syncLimit: number;
        /** @description The token `continue` of the previous page. Repeat the states. It does not expire. */
        syncContinue: string;
        /** @description Id of a change event. Slashes in it must be escaped. */
        changeID: string;
        /** @description Only events of these comma-separated clusters. */
        changeCluster: string;
        /** @description Only events of this node. */
        changeNode: string;
        /**
         * @description Only events of these comma-separated actors: people, or components,
         *     whose names can be given without the part before the slash.
         * @example alice@example.com,fault-quarantine
         */
        changeActor: string;
        /**
         * @description Only events from these comma-separated components.
         * @example nvsentinel/node-drainer
         */
        changeSource: string;
        /**
         * @description Only these comma-separated actions.
         * @example cordon,uncordon
         */
        changeAction: string;
        /** @description Only events on this subject, for example executions/scale-web. */
        changeSubject: string;
        /** @description Only events with this session id. */
        changeSession: string;
        /**
         * @description Only changes of this field or a field below it, for example
         *     spec.version, spec or labels.tier. List positions are ignored:
         *     spec.workers.maximum matches every worker. Creations and deletions of
         *     resources are not changes of a field.
         * @example spec.version
         */
        changeField: string;
        /** @description Only events with this outcome. */
        changeOutcome: "succeeded" | "failed";
        /** @description Only dry runs (true), or only events that are none (false). */
        changeDryRun: boolean;
        /** @description Only events whose summary or reason contains this text, in upper or lower case. */
        changeText: string;
        /** @description Maximum number of items in a page. */
        revisionLimit: number;
        /** @description The token `continue` of the previous page. */
        revisionContinue: string;
        /**
         * @description Only events since this time: a time, a day, or an age such as 90m or 7d.
         * @example 90m
         */
        changesSince: string;
        /** @description Only events before this time: a time, a day, or an age. */
        changesUntil: string;
        /** @description Maximum number of items in a page. */
        changesLimit: number;
        /**
         * @description The token `continue` of the previous page. Repeat all other parameters
         *     except limit. It does not expire.
         */
        changesCursor: string;
        /**
         * @description Starts the stream after this cursor: `cursor` of a list, or the id of an
         *     event of a stream. The header Last-Event-ID takes precedence.
         */
        changesAfter: string;
        /** @description Only resources of this kind. Both kinds by default. */
        stuckKind: "clusters" | "nodepools";
        /** @description Only resources with these types of causes, separated by commas. */
        stuckCause: components["schemas"]["StuckCauseType"][];
        /** @description Minimum time for which a resource is not ready or not synced, for example 90s, 5m or 2h. */
        stuckOlderThan: string;
        /** @description The token `continue` of the previous page. Repeat all other parameters except limit. It does not expire. */
        stuckContinue: string;
    };
    requestBodies: {
        /** @description The reason, for the change event. The body may be left out. */
        SyncControl: {
            content: {
                "application/json": components["schemas"]["SyncControl"];
            };
        };
        /** @description The clusters. */
        BulkSyncControl: {
            content: {
                "application/json": components["schemas"]["BulkSyncControl"];
            };
        };
        /** @description Change events. */
        ChangeEvents: {
            content: {
                "application/json": components["schemas"]["ChangeEventInput"] | components["schemas"]["ChangeEventInput"][];
                "application/cloudevents+json": components["schemas"]["CloudEvent"];
                "application/cloudevents-batch+json": components["schemas"]["CloudEvent"][];
            };
        };
        /**
         * @description One CreateRequest per line, any number of lines. The maximum body size
         *     applies to each line. A line that takes longer than 30 seconds to arrive
         *     ends the load.
         */
        Load: {
            content: {
                "application/x-ndjson": string;
            };
        };
        Create: {
            content: {
                "application/json": components["schemas"]["CreateRequest"];
            };
        };
        Patch: {
            content: {
                "application/json": components["schemas"]["PatchRequest"];
                "application/merge-patch+json": components["schemas"]["PatchRequest"];
            };
        };
        Report: {
            content: {
                "application/json": components["schemas"]["Report"];
            };
        };
        ForceDelete: {
            content: {
                "application/json": components["schemas"]["ForceDeleteRequest"];
            };
        };
    };
    headers: {
        /** @description Changes whenever the response changes. */
        ETag: string;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    whoAmI: {
        parameters: {
            query?: never;
            header?: {
                /** @description Subject to impersonate. Every request takes this header. The token needs the role operator. */
                "Impersonate-User"?: components["parameters"]["impersonateUser"];
                /** @description Tenant of the impersonated subject. Without a role, it is required. */
                "Impersonate-Tenant"?: components["parameters"]["impersonateTenant"];
                /** @description A role of the impersonated subject - system, viewer or operator. Repeat the header for several. */
                "Impersonate-Role"?: components["parameters"]["impersonateRole"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Identity"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getSummary: {
        parameters: {
            query?: {
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Summary"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listStuck: {
        parameters: {
            query?: {
                /** @description Only resources of this kind. Both kinds by default. */
                kind?: components["parameters"]["stuckKind"];
                /** @description Only resources with these types of causes, separated by commas. */
                cause?: components["parameters"]["stuckCause"];
                /** @description Minimum time for which a resource is not ready or not synced, for example 90s, 5m or 2h. */
                older_than?: components["parameters"]["stuckOlderThan"];
                /** @description Maximum number of items in a page. */
                limit?: components["parameters"]["syncLimit"];
                /** @description The token `continue` of the previous page. Repeat all other parameters except limit. It does not expire. */
                continue?: components["parameters"]["stuckContinue"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Stuck"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    canI: {
        parameters: {
            query: {
                /** @description What the caller does. retry, pause and resume are for the sync of clusters, and report for status reports. */
                verb: "get" | "list" | "create" | "patch" | "delete" | "retry" | "pause" | "resume" | "report";
                /** @description A collection. */
                resource: "clusters" | "nodepools" | "manifests" | "workloads";
                /** @description Name or id of the resource. */
                name?: string;
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description Subject to impersonate. Every request takes this header. The token needs the role operator. */
                "Impersonate-User"?: components["parameters"]["impersonateUser"];
                /** @description Tenant of the impersonated subject. Without a role, it is required. */
                "Impersonate-Tenant"?: components["parameters"]["impersonateTenant"];
                /** @description A role of the impersonated subject - system, viewer or operator. Repeat the header for several. */
                "Impersonate-Role"?: components["parameters"]["impersonateRole"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Permission"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listClusters: {
        parameters: {
            query?: {
                /**
                 * @description Kubernetes label selector, for example `region=us-east,tier in
                 *     (a,b),!retired`.
                 */
                labels?: components["parameters"]["labels"];
                /**
                 * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
                 *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
                 *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
                 *     columns id, name, kind, generation, created_time, updated_time,
                 *     deleted_time, created_by, updated_by, deleted_by, owner_id,
                 *     status.phase, status.observed_generation, status.last_updated_time,
                 *     status.last_transition_time, labels.KEY, spec.PATH,
                 *     status.conditions.TYPE and its .reason, .observed_generation,
                 *     .last_updated_time and .last_transition_time. A comparison with a
                 *     missing value is false, and its negation is true. PATH is a dot-
                 *     separated path in the spec. A query can compare spec.PATH at most 8
                 *     times, with a string, a number, true or false. No index supports such a
                 *     comparison, so all rows that match the rest of the query are read.
                 * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
                 */
                search?: components["parameters"]["search"];
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
                /**
                 * @description Comma-separated ids of the resources to return. Missing resources are
                 *     left out. Cannot be combined with parameters other than strict. Ids of
                 *     resources with more than about 8 MiB are refused as invalid_query; ask
                 *     for fewer.
                 */
                ids?: components["parameters"]["ids"];
                /**
                 * @description Returns the changes since a cursor, which comes from a keyset page or
                 *     from the last response, of any collection. Can be combined with labels,
                 *     limit (default 500) and watch. A page of large resources ends at about
                 *     8 MiB. Changes are retained for one hour by default; clients with an
                 *     older cursor must list again.
                 */
                changed_since?: components["parameters"]["changedSince"];
                /**
                 * @description Returns a stream of server-sent events (`changed`, `removed`,
                 *     `bookmark`, `error`): first the changes since the cursor, then new
                 *     changes. The id of an event is the cursor after it. Without a cursor the
                 *     stream starts now.
                 */
                watch?: components["parameters"]["watch"];
                /**
                 * @description Selects keyset paging. Maximum number of items in a page. A page of
                 *     large resources ends at about 8 MiB.
                 */
                limit?: components["parameters"]["limit"];
                /**
                 * @description The token `continue` of the previous page. Repeat labels, search, fields
                 *     and order. It does not expire.
                 */
                continue?: components["parameters"]["continue"];
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
                /**
                 * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
                 *     generation, created_time, updated_time, deleted_time, created_by,
                 *     updated_by, deleted_by, owner_id, status.phase,
                 *     status.last_transition_time), optionally followed by asc or desc. The id
                 *     breaks ties, in the direction of the last term. Missing values sort as
                 *     the largest. The default is `created_time desc` for paging by number and
                 *     `id` for keyset paging. Indexes serve the orders by id, created_time,
                 *     name (clusters), and status.phase and status.last_transition_time
                 *     (clusters and node pools); other orders sort all matching rows.
                 */
                order?: components["parameters"]["order"];
                /**
                 * @deprecated
                 * @description Deprecated. The column to sort by; order is then the direction.
                 */
                orderBy?: components["parameters"]["orderBy"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
                /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
                "Last-Event-ID"?: components["parameters"]["lastEventID"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ListOrChanges"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            410: components["responses"]["CursorExpired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    createCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Create"];
        responses: {
            201: components["responses"]["Created"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    loadClusters: {
        parameters: {
            query?: {
                /**
                 * @description Policy for names that exist: `fail` ends the load, `skip` keeps the
                 *     existing resource and continues, so that an interrupted load can be
                 *     repeated.
                 */
                if_exists?: components["parameters"]["ifExists"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Load"];
        responses: {
            200: components["responses"]["Loaded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getCluster: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Resource"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    patchCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Patch"];
        responses: {
            200: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listClusterRevisions: {
        parameters: {
            query?: {
                /** @description Maximum number of items in a page. */
                limit?: components["parameters"]["revisionLimit"];
                /** @description The token `continue` of the previous page. */
                continue?: components["parameters"]["revisionContinue"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Revisions"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listClusterStatuses: {
        parameters: {
            query?: {
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Reports"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putClusterStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    postClusterStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    forceDeleteCluster: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ForceDelete"];
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listClusterSyncs: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated sync states to return; by default all.
                 * @example [
                 *       "stuck",
                 *       "backing_off"
                 *     ]
                 */
                state?: components["parameters"]["syncState"];
                /** @description Maximum number of items in a page. */
                limit?: components["parameters"]["syncLimit"];
                /** @description The token `continue` of the previous page. Repeat the states. It does not expire. */
                continue?: components["parameters"]["syncContinue"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ClusterSyncs"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    retryClusterSyncs: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["BulkSyncControl"];
        responses: {
            200: components["responses"]["BulkSyncResult"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    pauseClusterSyncs: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["BulkSyncControl"];
        responses: {
            200: components["responses"]["BulkSyncResult"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    resumeClusterSyncs: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["BulkSyncControl"];
        responses: {
            200: components["responses"]["BulkSyncResult"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getClusterSync: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ClusterSync"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    retryClusterSync: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: components["requestBodies"]["SyncControl"];
        responses: {
            200: components["responses"]["ClusterSync"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    pauseClusterSync: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: components["requestBodies"]["SyncControl"];
        responses: {
            200: components["responses"]["ClusterSync"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    resumeClusterSync: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: components["requestBodies"]["SyncControl"];
        responses: {
            200: components["responses"]["ClusterSync"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listNodePools: {
        parameters: {
            query?: {
                /**
                 * @description Kubernetes label selector, for example `region=us-east,tier in
                 *     (a,b),!retired`.
                 */
                labels?: components["parameters"]["labels"];
                /**
                 * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
                 *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
                 *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
                 *     columns id, name, kind, generation, created_time, updated_time,
                 *     deleted_time, created_by, updated_by, deleted_by, owner_id,
                 *     status.phase, status.observed_generation, status.last_updated_time,
                 *     status.last_transition_time, labels.KEY, spec.PATH,
                 *     status.conditions.TYPE and its .reason, .observed_generation,
                 *     .last_updated_time and .last_transition_time. A comparison with a
                 *     missing value is false, and its negation is true. PATH is a dot-
                 *     separated path in the spec. A query can compare spec.PATH at most 8
                 *     times, with a string, a number, true or false. No index supports such a
                 *     comparison, so all rows that match the rest of the query are read.
                 * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
                 */
                search?: components["parameters"]["search"];
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
                /**
                 * @description Comma-separated ids of the resources to return. Missing resources are
                 *     left out. Cannot be combined with parameters other than strict. Ids of
                 *     resources with more than about 8 MiB are refused as invalid_query; ask
                 *     for fewer.
                 */
                ids?: components["parameters"]["ids"];
                /**
                 * @description Returns the changes since a cursor, which comes from a keyset page or
                 *     from the last response, of any collection. Can be combined with labels,
                 *     limit (default 500) and watch. A page of large resources ends at about
                 *     8 MiB. Changes are retained for one hour by default; clients with an
                 *     older cursor must list again.
                 */
                changed_since?: components["parameters"]["changedSince"];
                /**
                 * @description Returns a stream of server-sent events (`changed`, `removed`,
                 *     `bookmark`, `error`): first the changes since the cursor, then new
                 *     changes. The id of an event is the cursor after it. Without a cursor the
                 *     stream starts now.
                 */
                watch?: components["parameters"]["watch"];
                /**
                 * @description Selects keyset paging. Maximum number of items in a page. A page of
                 *     large resources ends at about 8 MiB.
                 */
                limit?: components["parameters"]["limit"];
                /**
                 * @description The token `continue` of the previous page. Repeat labels, search, fields
                 *     and order. It does not expire.
                 */
                continue?: components["parameters"]["continue"];
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
                /**
                 * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
                 *     generation, created_time, updated_time, deleted_time, created_by,
                 *     updated_by, deleted_by, owner_id, status.phase,
                 *     status.last_transition_time), optionally followed by asc or desc. The id
                 *     breaks ties, in the direction of the last term. Missing values sort as
                 *     the largest. The default is `created_time desc` for paging by number and
                 *     `id` for keyset paging. Indexes serve the orders by id, created_time,
                 *     name (clusters), and status.phase and status.last_transition_time
                 *     (clusters and node pools); other orders sort all matching rows.
                 */
                order?: components["parameters"]["order"];
                /**
                 * @deprecated
                 * @description Deprecated. The column to sort by; order is then the direction.
                 */
                orderBy?: components["parameters"]["orderBy"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
                /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
                "Last-Event-ID"?: components["parameters"]["lastEventID"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ListOrChanges"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            410: components["responses"]["CursorExpired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    createNodePool: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Create"];
        responses: {
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            422: components["responses"]["ParentRequired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    loadNodePools: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["ParentRequired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getNodePool: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Resource"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteNodePool: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    patchNodePool: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Patch"];
        responses: {
            200: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listNodePoolRevisions: {
        parameters: {
            query?: {
                /** @description Maximum number of items in a page. */
                limit?: components["parameters"]["revisionLimit"];
                /** @description The token `continue` of the previous page. */
                continue?: components["parameters"]["revisionContinue"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Revisions"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listNodePoolStatuses: {
        parameters: {
            query?: {
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Reports"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putNodePoolStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    postNodePoolStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    forceDeleteNodePool: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ForceDelete"];
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listNodePoolsOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Kubernetes label selector, for example `region=us-east,tier in
                 *     (a,b),!retired`.
                 */
                labels?: components["parameters"]["labels"];
                /**
                 * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
                 *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
                 *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
                 *     columns id, name, kind, generation, created_time, updated_time,
                 *     deleted_time, created_by, updated_by, deleted_by, owner_id,
                 *     status.phase, status.observed_generation, status.last_updated_time,
                 *     status.last_transition_time, labels.KEY, spec.PATH,
                 *     status.conditions.TYPE and its .reason, .observed_generation,
                 *     .last_updated_time and .last_transition_time. A comparison with a
                 *     missing value is false, and its negation is true. PATH is a dot-
                 *     separated path in the spec. A query can compare spec.PATH at most 8
                 *     times, with a string, a number, true or false. No index supports such a
                 *     comparison, so all rows that match the rest of the query are read.
                 * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
                 */
                search?: components["parameters"]["search"];
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
                /**
                 * @description Comma-separated ids of the resources to return. Missing resources are
                 *     left out. Cannot be combined with parameters other than strict. Ids of
                 *     resources with more than about 8 MiB are refused as invalid_query; ask
                 *     for fewer.
                 */
                ids?: components["parameters"]["ids"];
                /**
                 * @description Selects keyset paging. Maximum number of items in a page. A page of
                 *     large resources ends at about 8 MiB.
                 */
                limit?: components["parameters"]["limit"];
                /**
                 * @description The token `continue` of the previous page. Repeat labels, search, fields
                 *     and order. It does not expire.
                 */
                continue?: components["parameters"]["continue"];
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
                /**
                 * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
                 *     generation, created_time, updated_time, deleted_time, created_by,
                 *     updated_by, deleted_by, owner_id, status.phase,
                 *     status.last_transition_time), optionally followed by asc or desc. The id
                 *     breaks ties, in the direction of the last term. Missing values sort as
                 *     the largest. The default is `created_time desc` for paging by number and
                 *     `id` for keyset paging. Indexes serve the orders by id, created_time,
                 *     name (clusters), and status.phase and status.last_transition_time
                 *     (clusters and node pools); other orders sort all matching rows.
                 */
                order?: components["parameters"]["order"];
                /**
                 * @deprecated
                 * @description Deprecated. The column to sort by; order is then the direction.
                 */
                orderBy?: components["parameters"]["orderBy"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["List"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    createNodePoolOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Create"];
        responses: {
            201: components["responses"]["Created"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    loadNodePoolsOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Policy for names that exist: `fail` ends the load, `skip` keeps the
                 *     existing resource and continues, so that an interrupted load can be
                 *     repeated.
                 */
                if_exists?: components["parameters"]["ifExists"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Load"];
        responses: {
            200: components["responses"]["Loaded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getNodePoolOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Resource"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteNodePoolOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    patchNodePoolOfCluster: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Patch"];
        responses: {
            200: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listNodePoolStatusesOfCluster: {
        parameters: {
            query?: {
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
            };
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Reports"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putNodePoolStatusOfCluster: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    postNodePoolStatusOfCluster: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    forceDeleteNodePoolOfCluster: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the cluster. */
                parent: components["parameters"]["parent"];
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ForceDelete"];
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listManifests: {
        parameters: {
            query?: {
                /**
                 * @description Kubernetes label selector, for example `region=us-east,tier in
                 *     (a,b),!retired`.
                 */
                labels?: components["parameters"]["labels"];
                /**
                 * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
                 *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
                 *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
                 *     columns id, name, kind, generation, created_time, updated_time,
                 *     deleted_time, created_by, updated_by, deleted_by, owner_id,
                 *     status.phase, status.observed_generation, status.last_updated_time,
                 *     status.last_transition_time, labels.KEY, spec.PATH,
                 *     status.conditions.TYPE and its .reason, .observed_generation,
                 *     .last_updated_time and .last_transition_time. A comparison with a
                 *     missing value is false, and its negation is true. PATH is a dot-
                 *     separated path in the spec. A query can compare spec.PATH at most 8
                 *     times, with a string, a number, true or false. No index supports such a
                 *     comparison, so all rows that match the rest of the query are read.
                 * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
                 */
                search?: components["parameters"]["search"];
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
                /**
                 * @description Comma-separated ids of the resources to return. Missing resources are
                 *     left out. Cannot be combined with parameters other than strict. Ids of
                 *     resources with more than about 8 MiB are refused as invalid_query; ask
                 *     for fewer.
                 */
                ids?: components["parameters"]["ids"];
                /**
                 * @description Returns the changes since a cursor, which comes from a keyset page or
                 *     from the last response, of any collection. Can be combined with labels,
                 *     limit (default 500) and watch. A page of large resources ends at about
                 *     8 MiB. Changes are retained for one hour by default; clients with an
                 *     older cursor must list again.
                 */
                changed_since?: components["parameters"]["changedSince"];
                /**
                 * @description Returns a stream of server-sent events (`changed`, `removed`,
                 *     `bookmark`, `error`): first the changes since the cursor, then new
                 *     changes. The id of an event is the cursor after it. Without a cursor the
                 *     stream starts now.
                 */
                watch?: components["parameters"]["watch"];
                /**
                 * @description Selects keyset paging. Maximum number of items in a page. A page of
                 *     large resources ends at about 8 MiB.
                 */
                limit?: components["parameters"]["limit"];
                /**
                 * @description The token `continue` of the previous page. Repeat labels, search, fields
                 *     and order. It does not expire.
                 */
                continue?: components["parameters"]["continue"];
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
                /**
                 * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
                 *     generation, created_time, updated_time, deleted_time, created_by,
                 *     updated_by, deleted_by, owner_id, status.phase,
                 *     status.last_transition_time), optionally followed by asc or desc. The id
                 *     breaks ties, in the direction of the last term. Missing values sort as
                 *     the largest. The default is `created_time desc` for paging by number and
                 *     `id` for keyset paging. Indexes serve the orders by id, created_time,
                 *     name (clusters), and status.phase and status.last_transition_time
                 *     (clusters and node pools); other orders sort all matching rows.
                 */
                order?: components["parameters"]["order"];
                /**
                 * @deprecated
                 * @description Deprecated. The column to sort by; order is then the direction.
                 */
                orderBy?: components["parameters"]["orderBy"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
                /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
                "Last-Event-ID"?: components["parameters"]["lastEventID"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ListOrChanges"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            410: components["responses"]["CursorExpired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    createManifest: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Create"];
        responses: {
            201: components["responses"]["Created"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    loadManifests: {
        parameters: {
            query?: {
                /**
                 * @description Policy for names that exist: `fail` ends the load, `skip` keeps the
                 *     existing resource and continues, so that an interrupted load can be
                 *     repeated.
                 */
                if_exists?: components["parameters"]["ifExists"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Load"];
        responses: {
            200: components["responses"]["Loaded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getManifest: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Resource"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteManifest: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    patchManifest: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Patch"];
        responses: {
            200: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listManifestStatuses: {
        parameters: {
            query?: {
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Reports"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putManifestStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    postManifestStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    forceDeleteManifest: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ForceDelete"];
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listWorkloads: {
        parameters: {
            query?: {
                /**
                 * @description Kubernetes label selector, for example `region=us-east,tier in
                 *     (a,b),!retired`.
                 */
                labels?: components["parameters"]["labels"];
                /**
                 * @description Query in a subset of TSL: `and`, `or`, `not` and parentheses over
                 *     comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in (..)` or `in [..]`,
                 *     `not in`, `like`, `between .. and ..`, `is null`, `is not null`) of the
                 *     columns id, name, kind, generation, created_time, updated_time,
                 *     deleted_time, created_by, updated_by, deleted_by, owner_id,
                 *     status.phase, status.observed_generation, status.last_updated_time,
                 *     status.last_transition_time, labels.KEY, spec.PATH,
                 *     status.conditions.TYPE and its .reason, .observed_generation,
                 *     .last_updated_time and .last_transition_time. A comparison with a
                 *     missing value is false, and its negation is true. PATH is a dot-
                 *     separated path in the spec. A query can compare spec.PATH at most 8
                 *     times, with a string, a number, true or false. No index supports such a
                 *     comparison, so all rows that match the rest of the query are read.
                 * @example labels.region = 'us-east' and status.conditions.Reconciled = 'False'
                 */
                search?: components["parameters"]["search"];
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
                /**
                 * @description Comma-separated ids of the resources to return. Missing resources are
                 *     left out. Cannot be combined with parameters other than strict. Ids of
                 *     resources with more than about 8 MiB are refused as invalid_query; ask
                 *     for fewer.
                 */
                ids?: components["parameters"]["ids"];
                /**
                 * @description Returns the changes since a cursor, which comes from a keyset page or
                 *     from the last response, of any collection. Can be combined with labels,
                 *     limit (default 500) and watch. A page of large resources ends at about
                 *     8 MiB. Changes are retained for one hour by default; clients with an
                 *     older cursor must list again.
                 */
                changed_since?: components["parameters"]["changedSince"];
                /**
                 * @description Returns a stream of server-sent events (`changed`, `removed`,
                 *     `bookmark`, `error`): first the changes since the cursor, then new
                 *     changes. The id of an event is the cursor after it. Without a cursor the
                 *     stream starts now.
                 */
                watch?: components["parameters"]["watch"];
                /**
                 * @description Selects keyset paging. Maximum number of items in a page. A page of
                 *     large resources ends at about 8 MiB.
                 */
                limit?: components["parameters"]["limit"];
                /**
                 * @description The token `continue` of the previous page. Repeat labels, search, fields
                 *     and order. It does not expire.
                 */
                continue?: components["parameters"]["continue"];
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
                /**
                 * @description Comma-separated sort terms. A term is a column (id, name, kind, href,
                 *     generation, created_time, updated_time, deleted_time, created_by,
                 *     updated_by, deleted_by, owner_id, status.phase,
                 *     status.last_transition_time), optionally followed by asc or desc. The id
                 *     breaks ties, in the direction of the last term. Missing values sort as
                 *     the largest. The default is `created_time desc` for paging by number and
                 *     `id` for keyset paging. Indexes serve the orders by id, created_time,
                 *     name (clusters), and status.phase and status.last_transition_time
                 *     (clusters and node pools); other orders sort all matching rows.
                 */
                order?: components["parameters"]["order"];
                /**
                 * @deprecated
                 * @description Deprecated. The column to sort by; order is then the direction.
                 */
                orderBy?: components["parameters"]["orderBy"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
                /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
                "Last-Event-ID"?: components["parameters"]["lastEventID"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ListOrChanges"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            410: components["responses"]["CursorExpired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    createWorkload: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Create"];
        responses: {
            201: components["responses"]["Created"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    loadWorkloads: {
        parameters: {
            query?: {
                /**
                 * @description Policy for names that exist: `fail` ends the load, `skip` keeps the
                 *     existing resource and continues, so that an interrupted load can be
                 *     repeated.
                 */
                if_exists?: components["parameters"]["ifExists"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Load"];
        responses: {
            200: components["responses"]["Loaded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getWorkload: {
        parameters: {
            query?: {
                /**
                 * @description Comma-separated fields to return for each resource, in addition to the
                 *     id. Dots separate nested fields, for example status.conditions.type.
                 *     Fields that a resource does not have are null.
                 */
                fields?: components["parameters"]["fields"];
            };
            header?: {
                /** @description ETags of the versions that the client has. If one is current, the response is 304. */
                "If-None-Match"?: components["parameters"]["ifNoneMatch"];
                /**
                 * @description The value of this header in the response to a write. The response
                 *     includes that write. Every GET takes this header. With
                 *     `FFFFFFFFFFFFFFFFFFFFFFFF`, the response includes all writes.
                 */
                "Fleetloop-Read-After"?: components["parameters"]["readAfter"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Resource"];
            304: components["responses"]["NotModified"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteWorkload: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    patchWorkload: {
        parameters: {
            query?: {
                /**
                 * @description Validates and authorizes the request and returns its result, but changes
                 *     and records nothing. Changes without this parameter reject it.
                 */
                dry_run?: components["parameters"]["dryRun"];
            };
            header?: {
                /** @description Expected ETag of the resource. If it differs, nothing is changed and the response is 412. */
                "If-Match"?: components["parameters"]["ifMatch"];
            };
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Patch"];
        responses: {
            200: components["responses"]["Resource"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            412: components["responses"]["PreconditionFailed"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listWorkloadStatuses: {
        parameters: {
            query?: {
                /** @description Selects paging by number. Number of the page. */
                page?: components["parameters"]["page"];
                /**
                 * @description Maximum number of items in a page. A page of resources with more than
                 *     about 8 MiB is refused as invalid_query; the problem names the size that
                 *     fits.
                 */
                size?: components["parameters"]["size"];
                /**
                 * @deprecated
                 * @description Deprecated name of size.
                 */
                pageSize?: components["parameters"]["pageSize"];
            };
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Reports"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putWorkloadStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    postWorkloadStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Report"];
        responses: {
            201: components["responses"]["Reported"];
            204: components["responses"]["Discarded"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    forceDeleteWorkload: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the resource, a UUID. Ids are in order of creation. */
                id: components["parameters"]["id"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ForceDelete"];
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listChanges: {
        parameters: {
            query?: {
                /** @description Only events of these comma-separated clusters. */
                cluster?: components["parameters"]["changeCluster"];
                /** @description Only events of this node. */
                node?: components["parameters"]["changeNode"];
                /**
                 * @description Only events of these comma-separated actors: people, or components,
                 *     whose names can be given without the part before the slash.
                 * @example alice@example.com,fault-quarantine
                 */
                actor?: components["parameters"]["changeActor"];
                /**
                 * @description Only events from these comma-separated components.
                 * @example nvsentinel/node-drainer
                 */
                source?: components["parameters"]["changeSource"];
                /**
                 * @description Only these comma-separated actions.
                 * @example cordon,uncordon
                 */
                action?: components["parameters"]["changeAction"];
                /** @description Only events on this subject, for example executions/scale-web. */
                subject?: components["parameters"]["changeSubject"];
                /** @description Only events with this session id. */
                session?: components["parameters"]["changeSession"];
                /**
                 * @description Only changes of this field or a field below it, for example
                 *     spec.version, spec or labels.tier. List positions are ignored:
                 *     spec.workers.maximum matches every worker. Creations and deletions of
                 *     resources are not changes of a field.
                 * @example spec.version
                 */
                field?: components["parameters"]["changeField"];
                /** @description Only events with this outcome. */
                outcome?: components["parameters"]["changeOutcome"];
                /** @description Only dry runs (true), or only events that are none (false). */
                dry_run?: components["parameters"]["changeDryRun"];
                /** @description Only events whose summary or reason contains this text, in upper or lower case. */
                text?: components["parameters"]["changeText"];
                /**
                 * @description Only events since this time: a time, a day, or an age such as 90m or 7d.
                 * @example 90m
                 */
                since?: components["parameters"]["changesSince"];
                /** @description Only events before this time: a time, a day, or an age. */
                until?: components["parameters"]["changesUntil"];
                /** @description Maximum number of items in a page. */
                limit?: components["parameters"]["changesLimit"];
                /**
                 * @description The token `continue` of the previous page. Repeat all other parameters
                 *     except limit. It does not expire.
                 */
                continue?: components["parameters"]["changesCursor"];
                /**
                 * @description Starts the stream after this cursor: `cursor` of a list, or the id of an
                 *     event of a stream. The header Last-Event-ID takes precedence.
                 */
                after?: components["parameters"]["changesAfter"];
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description The cursor from which a watch continues. Takes precedence over changed_since. */
                "Last-Event-ID"?: components["parameters"]["lastEventID"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ChangeEvents"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            410: components["responses"]["CursorExpired"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    countChanges: {
        parameters: {
            query?: {
                /** @description Only events of these comma-separated clusters. */
                cluster?: components["parameters"]["changeCluster"];
                /** @description Only events of this node. */
                node?: components["parameters"]["changeNode"];
                /**
                 * @description Only events of these comma-separated actors: people, or components,
                 *     whose names can be given without the part before the slash.
                 * @example alice@example.com,fault-quarantine
                 */
                actor?: components["parameters"]["changeActor"];
                /**
                 * @description Only events from these comma-separated components.
                 * @example nvsentinel/node-drainer
                 */
                source?: components["parameters"]["changeSource"];
                /**
                 * @description Only these comma-separated actions.
                 * @example cordon,uncordon
                 */
                action?: components["parameters"]["changeAction"];
                /** @description Only events on this subject, for example executions/scale-web. */
                subject?: components["parameters"]["changeSubject"];
                /** @description Only events with this session id. */
                session?: components["parameters"]["changeSession"];
                /**
                 * @description Only changes of this field or a field below it, for example
                 *     spec.version, spec or labels.tier. List positions are ignored:
                 *     spec.workers.maximum matches every worker. Creations and deletions of
                 *     resources are not changes of a field.
                 * @example spec.version
                 */
                field?: components["parameters"]["changeField"];
                /** @description Only events with this outcome. */
                outcome?: components["parameters"]["changeOutcome"];
                /** @description Only dry runs (true), or only events that are none (false). */
                dry_run?: components["parameters"]["changeDryRun"];
                /** @description Only events whose summary or reason contains this text, in upper or lower case. */
                text?: components["parameters"]["changeText"];
                /**
                 * @description Only events since this time: a time, a day, or an age such as 90m or 7d.
                 * @example 90m
                 */
                since?: components["parameters"]["changesSince"];
                /** @description Only events before this time: a time, a day, or an age. */
                until?: components["parameters"]["changesUntil"];
                /** @description Maximum number of time steps. */
                buckets?: number;
                /** @description Lanes of the counts. With `node`, events without a node are not counted. */
                by?: "cluster" | "node" | "actor";
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ChangeBuckets"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    tellChanges: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the cluster, for events without their own. */
                cluster: string;
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["ChangeEvents"];
        responses: {
            202: components["responses"]["ChangesAccepted"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            422: components["responses"]["TimestampOutOfRange"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listUndeliveredChanges: {
        parameters: {
            query?: {
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["UndeliveredChanges"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listChangeDeliveries: {
        parameters: {
            query?: {
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: never;
            path: {
                /** @description Id of a change event. Slashes in it must be escaped. */
                id: components["parameters"]["changeID"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ChangeDeliveries"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    resendChange: {
        parameters: {
            query?: {
                /** @description Rejects unknown parameters. */
                strict?: components["parameters"]["strict"];
            };
            header?: {
                /** @description A key of the caller's choice. A repeated request of the same caller with the same key has no effect. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description Id of a change event. Slashes in it must be escaped. */
                id: components["parameters"]["changeID"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ChangeResend"];
            };
        };
        responses: {
            200: components["responses"]["ChangeNotResent"];
            202: components["responses"]["ChangeResent"];
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    listSchemas: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schemas, ordered by kind. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        items: components["schemas"]["SpecSchema"][];
                    };
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    getSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of a kind or of its collection, for example Cluster or clusters. */
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schema. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SpecSchema"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    putSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of a kind or of its collection, for example Cluster or clusters. */
                kind: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description Registered. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SpecSchema"];
                };
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["MediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
    deleteSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of a kind or of its collection, for example Cluster or clusters. */
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Invalid"];
            401: components["responses"]["Unauthenticated"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Unavailable"];
        };
    };
}
