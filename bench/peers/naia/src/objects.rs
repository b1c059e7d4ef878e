//! A world for naia: entities are numbers, components lie in a short list each, so that looking one up costs little.

use naia_shared::{
    ComponentFieldUpdate, ComponentKind, ComponentKinds, ComponentUpdate, EntityAndGlobalEntityConverter,
    GlobalWorldManagerType, LocalEntityAndGlobalEntityConverter, ReplicaDynMutWrapper, ReplicaDynRefWrapper,
    ReplicaMutTrait, ReplicaMutWrapper, ReplicaRefTrait, ReplicaRefWrapper, Replicate, ReplicatedComponent, SerdeErr,
    WorldMutType, WorldRefType,
};

#[derive(Default)]
pub(crate) struct Objects {
    /// By entity; `None` after it is gone.
    entities: Vec<Option<Vec<(ComponentKind, Box<dyn Replicate>)>>>,
}

struct Shared<'a, R>(&'a R);

impl<R: Replicate> ReplicaRefTrait<R> for Shared<'_, R> {
    fn to_ref(&self) -> &R {
        self.0
    }
}

struct Exclusive<'a, R>(&'a mut R);

impl<R: Replicate> ReplicaRefTrait<R> for Exclusive<'_, R> {
    fn to_ref(&self) -> &R {
        self.0
    }
}

impl<R: Replicate> ReplicaMutTrait<R> for Exclusive<'_, R> {
    fn to_mut(&mut self) -> &mut R {
        self.0
    }
}

impl Objects {
    fn find(&self, entity: u32, kind: &ComponentKind) -> Option<&dyn Replicate> {
        let components = self.entities.get(entity as usize)?.as_ref()?;
        components.iter().find(|(of, _)| of == kind).map(|(_, component)| &**component)
    }

    fn find_mut(&mut self, entity: u32, kind: &ComponentKind) -> Option<&mut Box<dyn Replicate>> {
        let components = self.entities.get_mut(entity as usize)?.as_mut()?;
        components.iter_mut().find(|(of, _)| of == kind).map(|(_, component)| component)
    }
}

impl Objects {
    fn ids(&self) -> Vec<u32> {
        (0..).zip(&self.entities).filter(|(_, entity)| entity.is_some()).map(|(id, _)| id).collect()
    }

    fn get<R: ReplicatedComponent>(&self, entity: u32) -> Option<ReplicaRefWrapper<'_, R>> {
        let component = self.find(entity, &ComponentKind::of::<R>())?;
        Some(ReplicaRefWrapper::new(Shared(component.to_any().downcast_ref::<R>()?)))
    }

    fn get_of_kind(&self, entity: u32, kind: &ComponentKind) -> Option<ReplicaDynRefWrapper<'_>> {
        Some(ReplicaDynRefWrapper::new(self.find(entity, kind)?.dyn_ref()))
    }
}

/// Both references to the world read it the same way.
macro_rules! readable {
    ($reference:ty) => {
        impl WorldRefType<u32> for $reference {
            fn has_entity(&self, entity: &u32) -> bool {
                self.entities.get(*entity as usize).is_some_and(Option::is_some)
            }

            fn entities(&self) -> Vec<u32> {
                self.ids()
            }

            fn has_component<R: ReplicatedComponent>(&self, entity: &u32) -> bool {
                self.find(*entity, &ComponentKind::of::<R>()).is_some()
            }

            fn has_component_of_kind(&self, entity: &u32, kind: &ComponentKind) -> bool {
                self.find(*entity, kind).is_some()
            }

            fn component<'a, R: ReplicatedComponent>(&'a self, entity: &u32) -> Option<ReplicaRefWrapper<'a, R>> {
                self.get(*entity)
            }

            fn component_of_kind<'a>(&'a self, entity: &u32, kind: &ComponentKind) -> Option<ReplicaDynRefWrapper<'a>> {
                self.get_of_kind(*entity, kind)
            }
        }
    };
}

readable!(&Objects);
readable!(&mut Objects);

/// The reason why the functions for client authority and prediction are not reached.
const UNUSED: &str = "clients of this workload neither own nor predict anything";

impl WorldMutType<u32> for &mut Objects {
    fn spawn_entity(&mut self) -> u32 {
        self.entities.push(Some(Vec::new()));
        self.entities.len() as u32 - 1
    }

    fn despawn_entity(&mut self, entity: &u32) {
        self.entities[*entity as usize] = None;
    }

    fn component_kinds(&mut self, entity: &u32) -> Vec<ComponentKind> {
        let components = self.entities[*entity as usize].iter().flatten();
        components.map(|(kind, _)| *kind).collect()
    }

    fn component_mut<'a, R: ReplicatedComponent>(&'a mut self, entity: &u32) -> Option<ReplicaMutWrapper<'a, R>> {
        let component = self.find_mut(*entity, &ComponentKind::of::<R>())?;
        Some(ReplicaMutWrapper::new(Exclusive(component.to_any_mut().downcast_mut::<R>()?)))
    }

    fn component_mut_of_kind<'a>(&'a mut self, entity: &u32, kind: &ComponentKind) -> Option<ReplicaDynMutWrapper<'a>> {
        Some(ReplicaDynMutWrapper::new(self.find_mut(*entity, kind)?.dyn_mut()))
    }

    fn component_apply_update(
        &mut self,
        converter: &dyn LocalEntityAndGlobalEntityConverter,
        entity: &u32,
        kind: &ComponentKind,
        update: ComponentUpdate,
    ) -> Result<(), SerdeErr> {
        match self.find_mut(*entity, kind) {
            Some(component) => component.read_apply_update(converter, update),
            None => Ok(()),
        }
    }

    fn component_apply_field_update(
        &mut self,
        converter: &dyn LocalEntityAndGlobalEntityConverter,
        entity: &u32,
        kind: &ComponentKind,
        update: ComponentFieldUpdate,
    ) -> Result<(), SerdeErr> {
        match self.find_mut(*entity, kind) {
            Some(component) => component.read_apply_field_update(converter, update),
            None => Ok(()),
        }
    }

    fn insert_component<R: ReplicatedComponent>(&mut self, entity: &u32, component: R) {
        self.insert_boxed_component(entity, Box::new(component));
    }

    fn insert_boxed_component(&mut self, entity: &u32, component: Box<dyn Replicate>) {
        let components = self.entities[*entity as usize].as_mut().expect("the entity is there");
        components.push((component.kind(), component));
    }

    fn remove_component<R: ReplicatedComponent>(&mut self, entity: &u32) -> Option<R> {
        let component = self.remove_component_of_kind(entity, &ComponentKind::of::<R>())?;
        component.to_boxed_any().downcast::<R>().ok().map(|component| *component)
    }

    fn remove_component_of_kind(&mut self, entity: &u32, kind: &ComponentKind) -> Option<Box<dyn Replicate>> {
        let components = self.entities[*entity as usize].as_mut()?;
        let at = components.iter().position(|(of, _)| of == kind)?;
        Some(components.remove(at).1)
    }

    fn local_duplicate_entity(&mut self, _: &u32) -> u32 {
        unreachable!("{UNUSED}")
    }

    fn local_duplicate_components(&mut self, _: &u32, _: &u32) {
        unreachable!("{UNUSED}")
    }

    fn mirror_entities(&mut self, _: &u32, _: &u32) {
        unreachable!("{UNUSED}")
    }

    fn mirror_components(&mut self, _: &u32, _: &u32, _: &ComponentKind) {
        unreachable!("{UNUSED}")
    }

    fn entity_publish(
        &mut self,
        _: &ComponentKinds,
        _: &dyn EntityAndGlobalEntityConverter<u32>,
        _: &dyn GlobalWorldManagerType,
        _: &u32,
    ) {
        unreachable!("{UNUSED}")
    }

    fn component_publish(
        &mut self,
        _: &ComponentKinds,
        _: &dyn EntityAndGlobalEntityConverter<u32>,
        _: &dyn GlobalWorldManagerType,
        _: &u32,
        _: &ComponentKind,
    ) {
        unreachable!("{UNUSED}")
    }

    fn entity_unpublish(&mut self, _: &u32) {
        unreachable!("{UNUSED}")
    }

    fn component_unpublish(&mut self, _: &u32, _: &ComponentKind) {
        unreachable!("{UNUSED}")
    }

    fn entity_enable_delegation(
        &mut self,
        _: &ComponentKinds,
        _: &dyn EntityAndGlobalEntityConverter<u32>,
        _: &dyn GlobalWorldManagerType,
        _: &u32,
    ) {
        unreachable!("{UNUSED}")
    }

    fn component_enable_delegation(
        &mut self,
        _: &ComponentKinds,
        _: &dyn EntityAndGlobalEntityConverter<u32>,
        _: &dyn GlobalWorldManagerType,
        _: &u32,
        _: &ComponentKind,
    ) {
        unreachable!("{UNUSED}")
    }

    fn entity_disable_delegation(&mut self, _: &u32) {
        unreachable!("{UNUSED}")
    }

    fn component_disable_delegation(&mut self, _: &u32, _: &ComponentKind) {
        unreachable!("{UNUSED}")
    }
}
